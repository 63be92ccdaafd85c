// The configuration that mocha would load, without the test files that it names: mocha would run
// them beside the one that it is given.
const { createRequire } = require("node:module");
const { join } = require("node:path");

const local = createRequire(join(process.cwd(), "package.json"));

function load() {
  const folder = local.resolve("mocha/package.json").slice(0, -"package.json".length);
  for (const name of ["lib/cli/config.js", "lib/cli/config.cjs"]) {
    try {
      const { findConfig, loadConfig } = require(join(folder, name));
      const file = process.env.PATCHSHOT_MOCHARC || findConfig(process.cwd());
      return file ? loadConfig(file) : {};
    } catch (error) {
      if (error.code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  return {};
}

function section() {
  try {
    return local("./package.json").mocha || {};
  } catch {
    return {};
  }
}

const { spec, reporter, parallel, watch, ...rest } = { ...section(), ...load() };
module.exports = rest;
