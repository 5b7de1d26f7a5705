import assert from "node:assert/strict";
import { test } from "node:test";
import { fileProblem, homeHint } from "./files.ts";

const failed = (code: string): Error => Object.assign(new Error(`${code}: as the system says it`), { code });

const cases: [name: string, path: string, error: Error, line: string][] = [
  ["what is not there", "/a/b.pem", failed("ENOENT"), "cannot read /a/b.pem: ENOENT (no such file or directory)"],
  ["what may not be read", "/a/b.pem", failed("EACCES"), "cannot read /a/b.pem: EACCES (permission denied)"],
  ["what the system alone understands", "/a", failed("EIO"), "cannot read /a: EIO"],
  ["an error of the gateway", "/a", new Error("it is not a regular file"), "cannot read /a: it is not a regular file"],
  [
    "the shell's word for home",
    "/etc/gateway/~/b.pem",
    failed("ENOENT"),
    "cannot read /etc/gateway/~/b.pem: ENOENT (no such file or directory): `~` is not expanded, use the full path or `${HOME}`",
  ],
];
for (const [name, path, error, line] of cases) {
  test(`reports ${name}`, () => assert.equal(fileProblem(path, error), line));
}

const homes: [path: string, code: string, isTold: boolean][] = [
  ["~/b.pem", "ENOENT", true],
  ["/a/~/b.pem", "ENOENT", true],
  ["/a/~/b.pem", "EACCES", false],
  ["/a/b~/c.pem", "ENOENT", false],
  ["/a/~b", "ENOENT", false],
  ["/a/b~", "ENOENT", false],
];
for (const [path, code, isTold] of homes) {
  test(`${code} of ${path} is ${isTold ? "" : "not "}a matter of home`, () => {
    assert.equal(homeHint(path, code) !== "", isTold);
  });
}
