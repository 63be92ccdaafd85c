// A helper of jasmine that writes the results in the form of jest's report.
const { writeFileSync } = require("node:fs");

const path = process.env.PATCHSHOT_REPORT;
const tests = [];

jasmine.getEnv().addReporter({
  specDone({ fullName, description, status, failedExpectations }) {
    const failureMessages = failedExpectations.map((one) => `${one.message}\n${one.stack ?? ""}`);
    const outer = fullName.slice(0, -description.length).trim();
    tests.push({ ancestorTitles: [outer], title: description, status, failureMessages });
  },
  jasmineDone({ overallStatus, failedExpectations }) {
    const bad = failedExpectations?.length && !tests.some((test) => test.status === "failed");
    const message = bad ? failedExpectations.map((one) => one.message).join("\n") : "";
    const status = bad ? "failed" : "passed";
    const testResults = [{ name: "", status, message, assertionResults: tests }];
    writeFileSync(path, JSON.stringify({ testResults, overallStatus }));
  },
});
