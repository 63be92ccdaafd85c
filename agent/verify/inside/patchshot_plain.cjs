// Replays JavaScript tests as plain code, without a test runner, as the order in PATCHSHOT_REPLAY
// asks (see `patchshot_plain.py`).
//
// It runs inside the sandbox under node 18 or later. A test runs as it is (`plain`), with another
// value in one assertion (`bent`), some more times in the same process (`twice`), in a user's
// program that has its package below `node_modules` (`moved`), and where calls with other arguments
// come before those of a test (`amid`). For each file, `plain`, `moved` and `amid` are programs of
// their own: this text with a call of `child`. A test that fails is not run in another variant.
"use strict";
const assert = require("node:assert");
const crypto = require("node:crypto");
const fs = require("node:fs");
const Module = require("node:module");
const os = require("node:os");
const path = require("node:path");
const { inspect, format } = require("node:util");
const { pathToFileURL } = require("node:url");
const vm = require("node:vm");

const SECONDS = 60; // of one process
const MOST_PROCESSES = 3; // for one variant of a file's tests
const CALLS_SECONDS = 0.1; // of a test in one process
const CALLS_BEFORE = 9; // with other arguments, in `amid`
const MODULES = 20; // of a user's program
const MOST_BENT = 12;
const SETTLING = 20; // milliseconds in which what a test has started ends
const BENT_SECONDS = 3;
const EQUALS = ["equal", "deepEqual", "strictEqual", "deepStrictEqual"];
const VALUE_CHARS = 300;
const LATER = 10 * 365 * 86_400_000; // milliseconds by which clocks are moved
const COMMON = "exports, require, module, __filename, __dirname";
const USER = { USER: "dev", LOGNAME: "dev", LANG: "C.UTF-8", TERM: "xterm", TZ: "EST5" };
Object.assign(USER, { PATH: "/usr/local/bin:/usr/bin:/bin", SHELL: "/bin/sh" });
const RUNNERS = ["node:test", "@jest/globals", "vitest", "mocha"];
const ASSERTS = ["assert", "node:assert", "assert/strict", "node:assert/strict"];
const OF_RUNNERS = /^(?:@jest\/|@vitest\/|(?:jest|vitest|mocha|jasmine|ava|tap|tape)(?:$|[/-]))/;
const TESTS = /^(?:(?:.*\/)?(?:tests?|specs?|__tests__)(?:\/.*)?|.*[._-](?:test|spec)\.[cm]?js)$/;
const HOOKS = {
  before: ["before", "beforeAll", "suiteSetup"],
  after: ["after", "afterAll", "suiteTeardown"],
  beforeEach: ["beforeEach", "setup"],
  afterEach: ["afterEach", "teardown"],
};
const OTHERS = "test it specify describe context suite xit xtest xdescribe expect jest vi mock";
const NAMES = [...Object.values(HOOKS).flat(), ...OTHERS.split(" ")];
const UNPUBLISHED = /^(?:\.|(?:node_modules|package-lock\.json|yarn\.lock|pnpm-lock\.yaml)$)/;
// What has a value shown or compared as another one.
const SHOWS = ["toJSON", "valueOf", "toString", "inspect", "equals", "asymmetricMatch"];
const later = { by: 0 };
const timers = new Map(); // what each has to do

// ---- the trusted process

function parent() {
  process.title = "sh";
  const [place, report, seal] = ["PATCHSHOT_REPLAY", "SANDBOX_REPORT", "PATCHSHOT_SEAL"].map(taken);
  const order = JSON.parse(fs.readFileSync(place, "utf8"));
  const key = seal ? fs.readFileSync(seal) : undefined;
  for (const file of seal ? [place, seal] : [place]) fs.unlinkSync(file);
  const root = fs.realpathSync(path.dirname(place));
  const descriptor = fs.openSync(report, "a");
  let last = "";
  const write = (line) => {
    let data = JSON.stringify(line);
    if (key) {
      last = crypto
        .createHmac("sha256", key)
        .update(last + data)
        .digest("hex")
        .slice(0, 16);
      data += `\t${last}`;
    }
    fs.writeSync(descriptor, `${data}\n`);
  };
  const files = new Map();
  for (const test of order.tests) {
    const [file] = test.split("::", 1);
    files.set(file, [...(files.get(file) ?? []), test.slice(file.length + 2)]);
  }
  for (const [id, names] of files) {
    const file = path.join(root, id);
    if (!fs.existsSync(file)) continue;
    const run = (way, left) => {
      const lines = inChildren({ root, file, way }, left);
      for (const { name, ...line } of lines) {
        write({ ...line, event: "replay", id: `${id}::${name}` });
      }
      return lines;
    };
    const plain = run("plain", names).filter((line) => line.variant === "plain");
    const named = (lines) => lines.map((line) => line.name);
    run("moved", named(plain.filter((line) => line.kind === "passed")));
    // Of tests that fail too: what `marked` has on the base is not new.
    run("amid", named(plain.filter((line) => line.kind !== "skipped")));
  }
}

// Return what processes report of tests: another one goes on where one ends before its time.
function inChildren(task, names) {
  const lines = [];
  for (let left = names, tries = 0; left.length && tries < MOST_PROCESSES; tries += 1) {
    lines.push(...inChild({ ...task, names: left }));
    const done = new Set(lines.map((line) => line.name));
    left = left.filter((name) => !done.has(name)).slice(1);
  }
  return lines;
}

function taken(name) {
  const value = process.env[name];
  delete process.env[name];
  return value;
}

// Return what a process reports of tests.
function inChild(task) {
  const home = fs.mkdtempSync(path.join(task.root, ".dev-"));
  const office = path.join(home, "office");
  fs.mkdirSync(path.join(office, "node_modules"), { recursive: true });
  const token = crypto.randomUUID();
  const { folder, table } = packageOf(task);
  const isCommon = task.file.endsWith(".cjs") || table.type !== "module";
  const isModule = task.file.endsWith(".mjs") || !isCommon;
  const manifest = { name: "office", version: "1.0.0", private: true };
  Object.assign(task, { office, folder, isModule, sample: task.file, to: folder, token });
  let { env } = process;
  let cwd = process.cwd();
  if (task.way === "moved") {
    const name = table.name || path.basename(folder);
    task.to = path.join(office, "node_modules", name);
    task.sample = path.join(office, isModule ? "sample.mjs" : "sample.js");
    layOut(task, table);
    manifest.dependencies = { [name]: "*" };
    env = { ...USER, HOME: home, PWD: office };
    cwd = office;
  }
  fs.writeFileSync(path.join(office, "package.json"), JSON.stringify(manifest));
  const main = path.join(office, "main.js");
  fs.writeFileSync(
    main,
    `${fs.readFileSync(__filename, "utf8")}\nchild(${JSON.stringify(task)});\n`,
  );
  const { spawnSync } = require("node:child_process");
  const stdio = ["ignore", "ignore", "ignore", "pipe"];
  const options = { cwd, env, stdio, timeout: SECONDS * 1000, killSignal: "SIGKILL" };
  const lines = String(spawnSync(process.execPath, [main], options).output?.[3] ?? "").split("\n");
  fs.rmSync(home, { recursive: true, force: true });
  const mine = lines.filter((line) => line.startsWith(token)); // others are the target's
  return mine.map((line) => JSON.parse(line.slice(token.length)));
}

// Return the folder of a file's package and what its manifest says.
function packageOf({ root, file }) {
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    let table = {};
    try {
      table = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
    } catch {} // no package, or none that can be read
    if (table.name || folder === root) return { folder, table };
  }
}

// Have a program's folder hold the package as npm would install it, and what is beside the test.
function layOut({ root, file, folder, to, office, sample }, table) {
  copy(folder, to, published(table));
  const needed = {
    ...table.dependencies,
    ...table.optionalDependencies,
    ...table.peerDependencies,
  };
  for (const name of Object.keys(needed)) {
    for (let up = folder; up.startsWith(root); up = path.dirname(up)) {
      const found = path.join(up, "node_modules", name);
      if (!fs.existsSync(found)) continue;
      link(found, path.join(office, "node_modules", name));
      break;
    }
  }
  const beside = path.dirname(file);
  const taken = new Set([path.basename(file), path.basename(sample), "main.js", "package.json"]);
  for (const name of beside === folder ? [] : fs.readdirSync(beside)) {
    if (!taken.has(name) && !UNPUBLISHED.test(name)) {
      link(path.join(beside, name), path.join(office, name));
    }
  }
  fs.writeFileSync(sample, fs.readFileSync(file));
}

// Return whether npm publishes an entry of the package's folder, where the manifest says it plainly.
function published({ files }) {
  if (!Array.isArray(files) || files.some((one) => /^[!*]/.test(one))) return () => true;
  const tops = files.map((one) => one.replace(/^\.?\//, "").split("/")[0]);
  return (name) => name === "package.json" || tops.includes(name);
}

function copy(folder, to, accepts = () => true) {
  fs.mkdirSync(to, { recursive: true });
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    if (UNPUBLISHED.test(entry.name) || TESTS.test(entry.name) || !accepts(entry.name)) continue;
    const [from, place] = [path.join(folder, entry.name), path.join(to, entry.name)];
    if (entry.isDirectory()) copy(from, place);
    else if (entry.isFile()) fs.linkSync(from, place);
    else link(from, place);
  }
}

function link(from, to) {
  fs.mkdirSync(path.dirname(to), { recursive: true });
  if (!fs.existsSync(to)) fs.symlinkSync(from, to);
}

// ---- the test as code

class Skip extends Error {}

class Suite {
  constructor(name, up) {
    Object.assign(this, { name, up, inner: [], off: Boolean(up?.off), hooks: {}, begun: false });
  }

  get titles() {
    return this.up ? [...this.up.titles, this.name] : [];
  }

  get chain() {
    return this.up ? [...this.up.chain, this] : [this];
  }
}

class Replay {
  top = new Suite("");
  at = this.top; // where a test is declared
  self = context();
  called = false; // whether the test's own code has run
  skipped = false; // whether it needs what only a runner has
  inOrder = false; // whether the tests before it have run
  bent = 0; // the line of the assertion that expects another value

  constructor(task) {
    this.task = task;
    this.require = Module.createRequire(task.file);
    this.shim = this.known(this.names());
  }

  // Return an object that has no more than what is here. What else a test uses needs a runner.
  known(members) {
    const get = (target, key) => {
      if (key in target || typeof key === "symbol" || key === "then" || key === "__esModule") {
        return target[key];
      }
      throw this.skip();
    };
    return new Proxy(members, { get });
  }

  skip() {
    this.skipped = true;
    return new Skip();
  }

  names() {
    const test = this.registering((suite, fn, off, style) => {
      suite.up.inner.push(Object.assign(suite, { fn, off, style }));
    });
    const describe = this.registering((suite, fn, off) => {
      suite.up.inner.push(Object.assign(suite, { off }));
      this.at = suite;
      const result = fn?.call(this.self, this.self);
      this.at = suite.up;
      if (typeof result?.then === "function") throw this.skip();
    });
    const hooks = {};
    for (const [kind, names] of Object.entries(HOOKS)) {
      const add = (...given) => {
        (this.at.hooks[kind] ??= []).push(given.find((one) => typeof one === "function"));
      };
      for (const name of names) hooks[name] = add;
    }
    const more = { it: test, specify: test, describe, suite: describe, context: describe };
    Object.assign(more, hooks, { xit: test.skip, xtest: test.skip, xdescribe: describe.skip });
    const lazy = {
      expect: () => this.package("expect", "expect"),
      mock: () => require("node:test").mock,
      jest: () => this.mocker(),
      vi: () => this.mocker(),
    };
    for (const [name, make] of Object.entries(lazy)) {
      let made;
      Object.defineProperty(more, name, { get: () => (made ??= make()), enumerable: true });
    }
    Object.defineProperties(test, Object.getOwnPropertyDescriptors(more));
    return Object.assign(test, { test, default: undefined });
  }

  registering(add) {
    const register = (off, ...given) => {
      const fn = given.find((one) => typeof one === "function");
      const options = given.find((one) => typeof one === "object" && one) ?? {};
      const name = typeof given[0] === "string" ? given[0] : fn?.name || "<anonymous>";
      const none = off || this.at.off || !fn || options.skip || options.todo;
      add(new Suite(name, this.at), fn, Boolean(none), this.style);
    };
    const usual = (...given) => register(false, ...given);
    const skip = (...given) => register(true, ...given);
    const each = (rows) => (title, fn) => {
      if (rows.raw) throw this.skip();
      rows.forEach((row, index) => {
        const values = Array.isArray(row) ? row : [row];
        const places = title.match(/%[sdifjoOp]/g) ?? [];
        const name = format(title.replaceAll("%#", index), ...values.slice(0, places.length));
        const rest =
          fn.length > values.length ? (done) => fn(...values, done) : () => fn(...values);
        usual(name, rest);
      });
    };
    return Object.assign(usual, { only: usual, concurrent: usual, skip, todo: skip, each });
  }

  // Return what a package of the project offers.
  package(name, member) {
    try {
      const found = this.require(name);
      return found[member] ?? found.default ?? found;
    } catch {
      const none = () => {
        throw this.skip();
      };
      return new Proxy(none, { get: none });
    }
  }

  mocker() {
    try {
      const mocker = new (this.require("jest-mock").ModuleMocker)(globalThis);
      return this.known({ fn: mocker.fn.bind(mocker), spyOn: mocker.spyOn.bind(mocker) });
    } catch {
      return this.known({});
    }
  }

  *load() {
    const { isModule, sample, file } = this.task;
    const source = fs.readFileSync(sample, "utf8").replace(/^#!.*/, "");
    this.style = /\bnode:test\b/.test(source) ? "node" : "other";
    if (isModule) {
      yield* this.loadModule(source);
      return;
    }
    const module = new Module(sample, require.main);
    module.filename = sample;
    module.paths = Module._nodeModulePaths(path.dirname(file));
    const own = (request) => Module._load(request, module, false);
    own.resolve = (request, options) => Module._resolveFilename(request, module, false, options);
    own.main = require.main;
    own.cache = Module._cache;
    module.require = own;
    Module._cache[sample] = module;
    const names = NAMES.filter((name) => name !== "mock");
    const given = names.map((name) => (source.includes(name) ? this.shim[name] : undefined));
    // Where the file declares such a name itself, its own is nearer.
    const head = `(function (${names}) { return function (${COMMON}) {`;
    const options = { filename: sample };
    options.importModuleDynamically = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;
    const wrapped = vm.runInThisContext(`${head}${source}\n}})`, options);
    const of = [module.exports, own, module, sample, path.dirname(sample)];
    wrapped(...given).apply(module.exports, of);
    module.loaded = true;
  }

  *loadModule(source) {
    if (!Module.register) throw this.skip();
    const { office, sample, file, folder, to } = this.task;
    const shims = {};
    const all = {};
    const provide = (names, value, members) => {
      const place = path.join(office, `part${Object.keys(all).length}.mjs`);
      all[place] = value;
      const offered = members.filter((name) => name !== "default");
      const lines = offered.map(
        (name) => `const $${name} = all.${name};\nexport { $${name} as ${name} };`,
      );
      const head = `const all = globalThis.office[${JSON.stringify(place)}];`;
      fs.writeFileSync(place, [head, "export default all.default ?? all;", ...lines].join("\n"));
      for (const name of names) shims[name] = pathToFileURL(place).href;
    };
    const used = NAMES.filter((name) => name !== "test" && source.includes(name));
    provide(RUNNERS, this.shim, ["test", ...used]);
    for (const name of ASSERTS) {
      const copied = this.assertions(name);
      provide([name], copied, Object.keys(copied));
    }
    const data = { shims, sample: pathToFileURL(sample).href, file: pathToFileURL(file).href };
    Object.assign(data, { from: pathToFileURL(folder).href, to: pathToFileURL(to).href });
    if (this.task.way === "amid") yield* this.busyModules(source, provide);
    Module.register(`data:text/javascript,${encodeURIComponent(LOADER)}`, { data });
    globalThis.office = all;
    for (const place of Object.keys(all)) yield import(pathToFileURL(place).href);
    delete globalThis.office;
    for (const name of used) {
      const declared = new RegExp(`\\b(?:import|const|let|var|function)\\b[^;(]*\\b${name}\\b`);
      if (!declared.test(source)) globalThis[name] = this.shim[name];
    }
    yield import(data.sample);
  }

  *busyModules(source, provide) {
    const found = [...source.matchAll(/\bfrom\s*["'](\.[^"']+)["']/g)];
    for (const name of new Set(found.map((match) => match[1]))) {
      const place = this.require.resolve(name);
      if (!isProduct(this.task, place)) continue;
      const exported = yield import(pathToFileURL(place).href);
      const members = Object.keys(exported);
      const busy = Object.fromEntries(members.map((one) => [one, busyOf(exported[one])]));
      provide([name], busy, members);
    }
  }

  // Run the test of a name and return how it ends; what comes before it may have to prepare it.
  *replayed(name) {
    this.name = name;
    const line = yield* this.ended();
    if (line.kind !== "error" || this.inOrder) return line;
    this.inOrder = true;
    const second = yield* this.ended(true);
    return second.kind === "error" ? line : second;
  }

  *ended(inOrder = false) {
    Object.assign(this, { called: false, skipped: false, seen: [] });
    try {
      yield* this.visit(this.top, inOrder);
    } catch (error) {
      return this.outcome(error ?? new Error(String(error)));
    }
    return this.outcome();
  }

  *visit(suite, inOrder) {
    for (const one of suite.inner) {
      if (!one.fn) {
        yield* this.visit(one, inOrder);
      } else if (this.leadsTo(one.titles)) {
        this.skipped = false;
        yield* this.perform(one);
      } else if (inOrder && !one.off && !this.called) {
        try {
          yield* this.perform(one);
        } catch {} // only what it leaves behind is wanted
      }
    }
  }

  // Have what tests leave behind taken away: another process comes.
  *close(suite = this.top) {
    for (const one of suite.inner) {
      if (!one.fn) yield* this.close(one);
    }
    for (const hook of (suite.begun && suite.hooks.after) || []) {
      try {
        yield* this.invoke(hook, new Suite("", suite));
      } catch {} // it is no test
    }
  }

  isMeant(titles) {
    return [" > ", " "].some((join) => titles.join(join).trim() === this.name);
  }

  leadsTo(titles) {
    return this.isMeant(titles) || this.name.startsWith(`${titles.join(" > ")} > `);
  }

  *perform(test) {
    if (test.off) throw this.skip();
    const above = test.up.chain;
    for (const suite of above.filter((one) => !one.begun)) {
      suite.begun = true;
      for (const hook of suite.hooks.before ?? []) yield* this.invoke(hook, test);
    }
    for (const suite of above) {
      for (const hook of suite.hooks.beforeEach ?? []) yield* this.invoke(hook, test);
    }
    try {
      yield* this.invoke(test.fn, test, this.isMeant(test.titles));
    } finally {
      for (const suite of above.reverse()) {
        for (const hook of suite.hooks.afterEach ?? []) yield* this.invoke(hook, test);
      }
    }
  }

  *invoke(fn, test, isMeant = false) {
    this.called ||= isMeant;
    const ofNode = test.style === "node";
    const given = ofNode ? [this.contextOf(test)] : [];
    if (fn.length > given.length) {
      yield new Promise((resolve, reject) => {
        const done = (error) => (error ? reject(error) : resolve());
        fn.call(this.self, ...given, Object.assign(done, { fail: done }));
      });
    } else if (isMeant && this.task.way === "moved") {
      yield new Promise((resolve, reject) => {
        setTimeout(() => {
          try {
            resolve(fn.apply(this.self, given));
          } catch (error) {
            reject(error);
          }
        }, 1);
      });
    } else {
      yield fn.apply(this.self, given);
    }
  }

  // Return the object that node's runner gives to a test.
  contextOf(test) {
    const inner = new Suite(test.name, test.up);
    const subtest = (...given) => {
      this.at = inner;
      this.shim.test(...given);
      this.at = this.top;
      const one = inner.inner.at(-1);
      if (!this.leadsTo(one.titles)) return Promise.resolve();
      return new Promise((resolve, reject) => {
        drive(this.perform(one), (error) => (error ? reject(error) : resolve()));
      });
    };
    const hook = (name) => (fn) => (inner.hooks[name] ??= []).push(fn);
    const nothing = () => {};
    const members = { name: test.name, test: subtest, it: subtest, diagnostic: nothing };
    members.assert = this.assertions("node:assert");
    for (const name of ["before", "beforeEach", "afterEach"]) members[name] = hook(name);
    Object.assign(members, { after: nothing, plan: nothing, todo: nothing, runOnly: nothing });
    members.skip = () => this.skip();
    members.signal = new AbortController().signal;
    Object.defineProperty(members, "mock", { get: () => this.shim.mock });
    return this.known(members);
  }

  // Return a module of assertions as node makes it: code of the target cannot change it.
  assertions(name) {
    const real = require(name);
    const copied = (...given) => real.ok(...given);
    Object.assign(copied, real);
    for (const one of EQUALS) {
      copied[one] = (actual, expected, ...rest) =>
        real[one](actual, this.see(actual, expected), ...rest);
    }
    copied.strict = name.endsWith("strict") ? copied : this.assertions("node:assert/strict");
    return copied;
  }

  // Note the values of an assertion, and bend what it expects.
  see(actual, expected) {
    const line = lineOf(new Error(), this.task.sample);
    this.seen.push({ line, actual: shown(actual), expected: shown(expected) });
    return line && line === this.bent ? bent(expected) : expected;
  }

  outcome(error) {
    const failed = isAssertion(error);
    const missing = /\b(?:to[A-Z]\w*|expect\b.*) is not a function/.test(error?.message ?? "");
    const skipped = this.skipped || missing || (!error && !this.called);
    const message = failed ? "" : String(error?.message ?? error);
    return {
      kind: skipped ? "skipped" : !error ? "passed" : failed ? "failed" : "error",
      error: error ? `${error?.name ?? typeof error}: ${message}`.slice(0, VALUE_CHARS) : "",
      line: error ? lineOf(error, this.task.sample) : 0,
      values: failed ? valuesOf(error) : [],
      reached: this.called,
      compared: false,
      marked: [...marked].sort(),
    };
  }
}

function bent(value) {
  if (typeof value === "number") return value ? -value : 1;
  if (typeof value === "string") return `${value}~`;
  return typeof value === "boolean" ? !value : { "~": value };
}

function isAssertion(error) {
  return error?.name === "AssertionError" || Boolean(error?.matcherResult);
}

function valuesOf(error) {
  const compared = "actual" in error ? error : (error.matcherResult ?? {});
  if (!("actual" in compared)) return [String(error.message).slice(0, VALUE_CHARS)];
  return [shown(compared.actual), shown(compared.expected)];
}

function shown(value) {
  const options = { customInspect: false, breakLength: Infinity, depth: 4 };
  try {
    const kind = isObject(value) ? value.constructor?.name : typeof value;
    return `${kind} ${inspect(value, options)}`.slice(0, VALUE_CHARS);
  } catch {
    return typeof value; // a value of the target may throw anything
  }
}

function lineOf(error, file) {
  const frames = String(error?.stack ?? "").split("\n");
  const frame = frames.find((line) => /^\s*at /.test(line) && line.includes(`${file}:`));
  return frame ? Number(frame.slice(frame.indexOf(`${file}:`) + file.length + 1).split(":")[0]) : 0;
}

// What mocha has as `this`.
function context() {
  const self = {};
  for (const name of ["timeout", "slow", "retries"]) self[name] = () => self;
  self.skip = () => {
    throw new Skip();
  };
  return self;
}

// Run a generator to its end: it goes on at once after what is no promise.
function drive(steps, end) {
  const go = (how, value) => {
    for (;;) {
      let step;
      try {
        step = steps[how](value);
      } catch (error) {
        return end(error ?? new Error(String(error)));
      }
      if (step.done) return end();
      if (typeof step.value?.then === "function") {
        return void step.value.then(
          (one) => go("next", one),
          (error) => go("throw", error),
        );
      }
      [how, value] = ["next", step.value];
    }
  };
  go("next");
}

// Maps modules of the tests to the package where it is laid out, in the thread of node's loader.
const LOADER = `
let data;
export function initialize(given) { data = given; }
export async function resolve(specifier, context, next) {
  const inTest = [data.sample, data.file].includes(context.parentURL);
  if (inTest && data.shims[specifier]) return { url: data.shims[specifier], shortCircuit: true };
  if (context.parentURL === data.sample) context = { ...context, parentURL: data.file };
  const found = await next(specifier, context);
  const inside = found.url.startsWith(data.from + "/") && !found.url.startsWith(data.to + "/");
  const moved = data.to + found.url.slice(data.from.length);
  if (!inside || data.to === data.from || found.url === data.sample) return found;
  const { existsSync } = await import("node:fs");
  const { fileURLToPath } = await import("node:url");
  return existsSync(fileURLToPath(moved)) ? { ...found, url: moved } : found;
}`;

function isProduct({ to }, file) {
  const inside = path.relative(to, file);
  return file.startsWith(`${to}/`) && !/(?:^|\/)node_modules\//.test(inside) && !TESTS.test(inside);
}

function isTest({ root, sample }, file) {
  if (!file || file === sample) return Boolean(file);
  return TESTS.test(path.relative(root, file)) && !file.includes("/node_modules/");
}

// Have modules of runners and assertions be ours, and those of the package be where it is laid out.
function hook(replay) {
  const { task } = replay;
  const { _load, _resolveFilename } = Module;
  const assertions = new Map(ASSERTS.map((name) => [name, replay.assertions(name)]));
  Module._load = function load(request, parent, isMain) {
    const ofTest = isTest(task, parent?.filename);
    if (ofTest && RUNNERS.includes(request)) return replay.shim;
    if (ofTest && assertions.has(request)) return assertions.get(request);
    const exported = _load.call(this, request, parent, isMain);
    if (task.way !== "amid" || !ofTest || Module.isBuiltin?.(request)) return exported;
    const file = Module._resolveFilename(request, parent, isMain);
    return isProduct(task, file) && !file.endsWith(".json") ? busyOf(exported) : exported;
  };
  if (task.way !== "moved") return;
  const origin = new Module(task.file);
  origin.filename = task.file;
  origin.paths = Module._nodeModulePaths(path.dirname(task.file));
  Module._resolveFilename = function resolve(request, parent, ...rest) {
    if (OF_RUNNERS.test(request) && isProduct(task, parent?.filename ?? "")) {
      const error = new Error(`Cannot find module '${request}'`);
      throw Object.assign(error, { code: "MODULE_NOT_FOUND" });
    }
    const asked = parent?.filename === task.sample ? origin : parent;
    const found = _resolveFilename.call(this, request, asked, ...rest);
    const inside = path.relative(task.folder, found);
    if (inside.startsWith("..") || /(?:^|\/)node_modules\//.test(inside)) return found;
    return fs.existsSync(path.join(task.to, inside)) ? path.join(task.to, inside) : found;
  };
}

// ---- other surroundings

// Have the process look like a user's.
function move() {
  later.by = LATER;
  const since = () => later.by / 1000;
  replace(process, "uptime", (real) => real() + since());
  replace(os, "uptime", (real) => real() + since());
  replace(performance, "now", (real) => real() + later.by);
  const { bigint } = process.hrtime;
  replace(process, "hrtime", (real, before) => {
    const [seconds, rest] = real(before);
    return [seconds + (before ? 0 : since()), rest];
  });
  process.hrtime.bigint = new Proxy(bigint, {
    apply: () => bigint() + BigInt(later.by) * 1_000_000n,
  });
  replace(globalThis, "setTimeout", (real, fire, wait, ...rest) => {
    const timer = real(fire, wait, ...rest);
    timers.set(timer, () => fire(...rest));
    return timer;
  });
  replace(Date, "now", (real) => real() + later.by);
  const moved = new Proxy(Date, {
    construct: (real, given, target) =>
      Reflect.construct(real, given.length ? given : [real.now()], target),
    apply: (real) => new real(real.now()).toString(),
  });
  Date.prototype.constructor = moved;
  globalThis.Date = moved;
  replace(os, "hostname", () => "workstation");
  const user = { username: "dev", homedir: process.env.HOME, uid: 1000, gid: 1000 };
  replace(os, "userInfo", (real, ...given) => ({ ...real(...given), ...user }));
  for (const name of ["getuid", "geteuid", "getgid", "getegid"]) replace(process, name, () => 1000);
  Object.defineProperty(process, "pid", { value: 48_211, enumerable: true, configurable: true });
  Object.defineProperty(process, "ppid", { value: 2_105, enumerable: true, configurable: true });
  replace(require("node:tty"), "isatty", () => true);
  for (const stream of [process.stdin, process.stdout, process.stderr]) stream.isTTY = true;
  Object.assign(process.stdout, { columns: 80, rows: 24 });
}

// Let years pass: every timer that waits has its end.
function pass() {
  later.by += LATER;
  for (const [timer, fire] of [...timers]) {
    if (timer._destroyed) continue;
    clearTimeout(timer);
    try {
      fire();
    } catch {} // nobody waits for it
  }
  timers.clear();
}

function replace(holder, name, other) {
  const real = holder[name].bind(holder);
  holder[name] = new Proxy(holder[name], { apply: (target, self, given) => other(real, ...given) });
}

// ---- other calls

const kept = [];
const marked = new Set(); // what code has done that has its results not be what they look like
const returned = [];
const called = new Set();
const own = { kept: false, inPlace: false }; // whether calls of a test leave its data as they are
const originals = new WeakMap();
const wrappers = new WeakMap();
let depth = 0;

// Return what a module offers so that other calls come before each call of a test.
function busyOf(value, deep = 2) {
  const isFunction = typeof value === "function";
  if (!isFunction && !(isData(value) && deep)) return value;
  if (wrappers.has(value)) return wrappers.get(value);
  let busy;
  if (isFunction) {
    const apply = (target, self, given) => {
      const its = originals.get(self) ?? self;
      return amid(target, given, (list) => Reflect.apply(target, its, list));
    };
    const construct = (target, given, of) => {
      const its = of === busy ? target : of;
      return amid(target, given, (list) => Reflect.construct(target, list, its));
    };
    const get = (target, key, receiver) => {
      const own = Reflect.getOwnPropertyDescriptor(target, key);
      const found = Reflect.get(target, key, receiver === busy ? target : receiver);
      return own?.configurable && key !== "prototype" ? busyOf(found, deep - 1) : found;
    };
    busy = new Proxy(value, { apply, construct, get });
  } else {
    busy = Object.create(Object.getPrototypeOf(value));
    for (const key of Reflect.ownKeys(value)) {
      const { enumerable } = Reflect.getOwnPropertyDescriptor(value, key);
      const get = () => busyOf(value[key], deep - 1);
      const set = (one) => (value[key] = one);
      Object.defineProperty(busy, key, { get, set, enumerable, configurable: true });
    }
  }
  wrappers.set(value, busy);
  originals.set(busy, value);
  return busy;
}

// Before the first call of a function come others; a call of each would empty a cache.
function amid(target, given, use) {
  if (depth) return use(given);
  const isKnown = given.every((one) => !isObject(one) || isPlain(one));
  const isFirst = !called.has(target);
  called.add(target);
  depth += 1;
  try {
    for (let by = 1; by <= CALLS_BEFORE && isKnown && isFirst; by += 1) {
      const other = given.map((one) => altered(one, by));
      if (other.every((one, at) => one === given[at])) break;
      try {
        const result = use(other);
        kept.push(result);
        if (typeof result?.then === "function") result.then(undefined, () => {});
      } catch {} // other arguments may be wrong ones
    }
  } finally {
    depth -= 1;
  }
  if (!own.kept) {
    const result = use(given);
    if (isData(result)) returned.push(result);
    return cleaned(result);
  }
  const copies = given.map((one) => altered(one, 0));
  const result = use(copies);
  own.inPlace ||= result === undefined || copies.some((one) => one === result && isData(one));
  return cleaned(result);
}

function isObject(value) {
  return value !== null && typeof value === "object";
}

function isData(value) {
  return isObject(value) && isPlain(value);
}

// Return another value of the same form, for 0 a copy, or what cannot be altered as it is.
function altered(value, by) {
  if (!isData(value) && !by) return value;
  if (typeof value === "number") return value + by;
  if (typeof value === "string") return value + String.fromCharCode(96 + by);
  if (typeof value === "function") return () => undefined;
  if (!isData(value)) return value;
  if (Array.isArray(value)) return value.map((one) => altered(one, by));
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, altered(one, by)]));
}

function isPlain(value) {
  const above = Object.getPrototypeOf(value);
  const { constructor } = value;
  return above === null || constructor === Object || constructor === Array;
}

// Return data without what shows it as other data: functions of its own, or of a hidden prototype.
function cleaned(value, seen = new Set()) {
  if (value instanceof String) return String.prototype.valueOf.call(value);
  if (!isData(value) || seen.has(value)) return value;
  seen.add(value);
  const above = Object.getPrototypeOf(value);
  let dirty = ![null, Object.prototype, Array.prototype].includes(above);
  const copied = Array.isArray(value) ? [] : above === null ? Object.create(null) : {};
  for (const key of Reflect.ownKeys(value)) {
    const own = Reflect.getOwnPropertyDescriptor(value, key);
    const shows = typeof key === "symbol" || SHOWS.includes(key);
    if (shows && (typeof own.value === "function" || own.get)) {
      dirty = true;
      marked.add(`returns data with its own ${String(key)}`);
    } else {
      const inner = "value" in own ? cleaned(own.value, seen) : undefined;
      dirty ||= "value" in own && inner !== own.value && own.value === own.value;
      Object.defineProperty(copied, key, "value" in own ? { ...own, value: inner } : own);
    }
  }
  return dirty ? copied : value;
}

// ---- the program

function child(task) {
  const { writeSync } = fs;
  const { exit } = process;
  const { stringify } = JSON;
  const report = (name, variant, line) =>
    writeSync(3, `${task.token}${stringify({ name, ...line, variant })}\n`);
  fs.writeFileSync(__filename, '"use strict";\nrequire("./sample");\n');
  const replay = new Replay(task);
  if (task.way === "moved") move();
  hook(replay);
  drive(variants(replay, task, report), (error) => {
    if (error) for (const name of task.names) report(name, task.way, replay.outcome(error));
    exit(0);
  });
}

function* variants(replay, { way, names, sample, office }, report) {
  const { now } = Date;
  const passed = [];
  for (let at = 1; at <= MODULES && way === "moved"; at += 1) {
    const file = path.join(office, `page${at}.js`);
    fs.writeFileSync(file, "");
    require(file);
  }
  yield* replay.load();
  if (way === "moved") {
    require("node:v8").setFlagsFromString("--expose-gc");
    yield new Promise(setImmediate);
    vm.runInNewContext("gc")();
    fs.writeFileSync(sample, '"use strict";\n');
  }
  for (const name of names) {
    called.clear();
    returned.length = 0;
    let line = yield* replay.replayed(name);
    if (way === "amid" && line.kind === "passed") {
      const before = returned.map(shown);
      yield new Promise((resolve) => setTimeout(resolve, SETTLING));
      if (returned.some((one, at) => shown(one) !== before[at])) {
        line.marked.push("changes what it has returned");
      }
    }
    if (line.kind === "passed" && way !== "plain") line = yield* once(replay, way, line);
    report(name, way, line);
    if (line.kind === "passed") passed.push(name);
  }
  for (const name of way === "plain" ? passed : []) {
    let line;
    const until = now() + CALLS_SECONDS * 1000;
    do {
      replay.name = name;
      line = yield* replay.ended();
      yield new Promise(setImmediate);
    } while (line.kind === "passed" && now() < until);
    report(name, "twice", line);
    const lines = [...new Set(replay.seen.map((one) => one.line))].filter(Boolean);
    for (const bentLine of line.kind === "passed" ? lines.slice(0, MOST_BENT) : []) {
      const timer = setTimeout(process.exit, BENT_SECONDS * 1000, 0).unref();
      replay.bent = bentLine;
      report(name, "bent", { ...(yield* replay.ended()), line: bentLine });
      clearTimeout(timer);
    }
    replay.bent = 0;
  }
  yield* replay.close();
}

// Run a test once more: some years later, or where its calls leave its own data as they are.
function* once(replay, way, line) {
  const { seen } = replay;
  if (way === "moved") pass();
  Object.assign(own, { kept: way === "amid", inPlace: false });
  const second = yield* replay.ended();
  own.kept = false;
  if (way === "moved") return second;
  const [first, last] = [seen[replay.seen.length - 1], replay.seen.at(-1)];
  const onlyExpected = first?.actual === last?.actual && first?.expected !== last?.expected;
  return onlyExpected && !own.inPlace ? second : line;
}

if (process.env.PATCHSHOT_REPLAY) parent();
