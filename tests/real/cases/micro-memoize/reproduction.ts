import memoize from '../src';

const join = (first: string, second: string) => `${first} ${second}`;

describe('getKeyIndex of an empty cache', () => {
  it('is -1', () => {
    const memoized = memoize(join);

    expect(memoized.cache.getKeyIndex(['a', 'b'])).toBe(-1);
    memoized('a', 'b');
    expect(memoized.cache.getKeyIndex(['a', 'b'])).toBe(0);
  });

  it('is -1 without a call of the matcher', () => {
    const isMatchingKey = jest.fn((key1: string[], key2: string[]) => key1.length === key2.length);
    const memoized = memoize(join, { isMatchingKey });

    expect(memoized.cache.getKeyIndex(['a', 'b'])).toBe(-1);
    expect(isMatchingKey).not.toHaveBeenCalled();
  });
});
