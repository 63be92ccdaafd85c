// A reporter of node's own test runner that writes one JSON line for each test.
//
// It runs inside the sandbox, in the process that starts the test files (node 18.15 or later); they
// run in processes of their own and do not learn where the lines go. Ids are `file::outer > name`.
import { openSync, writeSync } from "node:fs";
import { relative } from "node:path";

const TEXT_LIMIT = 6000;

const path = process.env.SANDBOX_REPORT;
delete process.env.SANDBOX_REPORT;
const descriptor = path ? openSync(path, "a") : -1;

function write(line) {
  if (descriptor < 0) return;
  let data = Buffer.from(JSON.stringify(line) + "\n");
  while (data.length) data = data.subarray(writeSync(descriptor, data));
}

// The error of the test, with what caused it: `fetch failed` says nothing by itself.
function describe(error) {
  const texts = [];
  for (let one = error?.cause ?? error; one && texts.length < 5; one = one.cause) {
    texts.push(String(one.stack ?? one));
  }
  return texts.join("\ncaused by: ").slice(-TEXT_LIMIT);
}

function outcome(type, data) {
  if (data.skip !== undefined || data.todo !== undefined) return "skipped";
  return type === "test:pass" ? "passed" : "failed";
}

// A file that fails as a whole is reported as a test that bears its name.
function identify(data, above) {
  const file = data.file ? relative(process.cwd(), data.file) : "";
  const names = [...above.slice(0, data.nesting), data.name];
  const isFile = data.nesting === 0 && file && (data.name === data.file || data.name === file);
  return isFile ? file : `${file}::${names.join(" > ")}`;
}

// Not worth a line: a suite whose tests were reported, a file that only sums up its tests.
function isSummary(type, data, id, reported) {
  const failedInside = data.details?.error?.failureType === "subtestsFailed";
  if (data.details?.type === "suite") return type === "test:pass" || failedInside;
  return !id.includes("::") && (failedInside || (type === "test:pass" && reported.has(id)));
}

export default async function* report(source) {
  const above = [];
  const reported = new Set();
  let failed = false;
  write({ event: "begin", runner: `node ${process.version}` });
  for await (const { type, data } of source) {
    if (type === "test:start") above[data.nesting] = data.name;
    if (type !== "test:pass" && type !== "test:fail") continue;
    const id = identify(data, above);
    const result = outcome(type, data);
    failed ||= result === "failed";
    if (isSummary(type, data, id, reported)) continue;
    reported.add(id.split("::")[0]);
    const text = result === "failed" ? describe(data.details?.error) : "";
    write({ event: "result", id, outcome: result, text });
  }
  write({ event: "finish", status: failed ? 1 : 0 });
  yield "";
}
