import assert from "node:assert/strict";
import { test } from "node:test";
import type { Finding } from "../config/prepare.ts";
import { ConfigError } from "../core/config-error.ts";
import { validationReport } from "./validate.ts";

const finding = (severity: Finding["severity"], message = "is wrong"): Finding => ({
  severity,
  problem: new ConfigError({ file: "a,b.yaml", line: 3, column: 5 }, "routes[0]", message),
});

test("warnings pass, and fail with strict; notes always pass", () => {
  assert.equal(validationReport([finding("warning")], "text", false).code, 0);
  assert.equal(validationReport([finding("note")], "text", true).code, 0);
  const strict = validationReport([finding("warning")], "text", true);
  assert.deepEqual(
    [strict.code, strict.stdout, strict.stderr],
    [
      1,
      "",
      "warning: a,b.yaml:3:5: routes[0]: is wrong\nconfiguration rejected: --strict allows no warnings, found 1\n",
    ],
  );
});

test("errors stand alone on standard error, without a verdict on standard output", () => {
  assert.deepEqual(validationReport([finding("error")], "text", false), {
    stdout: "",
    stderr: "a,b.yaml:3:5: routes[0]: is wrong\n",
    code: 1,
  });
});

test("as JSON, one object on standard output", () => {
  const report = validationReport([finding("note")], "json", true);
  assert.deepEqual(JSON.parse(report.stdout), {
    valid: true,
    findings: [{ severity: "note", file: "a,b.yaml", line: 3, column: 5, path: "routes[0]", message: "is wrong" }],
  });
  const unplaced = { severity: "error", problem: new ConfigError(undefined, "", "cannot read x") } as const;
  assert.deepEqual(JSON.parse(validationReport([unplaced], "json", false).stdout), {
    valid: false,
    findings: [{ severity: "error", message: "cannot read x" }],
  });
});

test("as annotations, with what GitHub needs escaped", () => {
  const findings = [finding("error", "50%\nof it: , wrong"), finding("warning"), finding("note")];
  assert.deepEqual(validationReport(findings, "github", false).stdout.split("\n"), [
    "::error file=a%2Cb.yaml,line=3,col=5::routes[0]: 50%25%0Aof it: , wrong",
    "::warning file=a%2Cb.yaml,line=3,col=5::routes[0]: is wrong",
    "::notice file=a%2Cb.yaml,line=3,col=5::routes[0]: is wrong",
    "",
  ]);
});
