/* globals suite test teardown */

const assert = require('assert')
const { unflatten } = require('../index')

suite('Keys that lead to the prototype', function () {
  teardown(function () {
    delete Object.prototype.polluted
  })

  test('__proto__ is left out', function () {
    const result = unflatten({ '__proto__.polluted': true, 'a.b': 1 })
    assert.strictEqual({}.polluted, undefined)
    assert.deepStrictEqual(result, { a: { b: 1 } })
  })
})
