import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { silentLogger } from "../../record/log/logger.ts";
import { StderrTail } from "./stdio-transport.ts";

function tailOf(text: string): StderrTail {
  const tail = new StderrTail({ name: "t", clock: fakeClock(), logger: silentLogger, secrets: ["given-secret"] });
  tail.push(Buffer.from(text));
  return tail;
}

const NODE_CRASH = `node:internal/modules/esm/resolve:275
    throw new ERR_MODULE_NOT_FOUND(
          ^

Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/srv/server.mjs' imported from /srv/
    at finalizeResolution (node:internal/modules/esm/resolve:275:11)
    at moduleResolve (node:internal/modules/esm/resolve:860:10) {
  code: 'ERR_MODULE_NOT_FOUND',
  url: 'file:///srv/server.mjs'
}

Node.js v20.20.2
`;
const NPM = `npm error code E404
npm error 404 Not Found - GET https://registry.example/no-such-server - Not found
npm error 404  'no-such-server@*' is not in this registry.
npm error A complete log of this run can be found in: /home/a/.npm/_logs/x.log
`;
const PYTHON = `Traceback (most recent call last):
  File "/srv/server.py", line 3, in <module>
    import mcp
ModuleNotFoundError: No module named 'mcp'
`;

const cases: [name: string, text: string, words: string | undefined][] = [
  [
    "Node's error, not its version below",
    NODE_CRASH,
    "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/srv/server.mjs' imported from /srv/",
  ],
  [
    "what npm did not find, not the way to its log",
    NPM,
    "npm error 404 Not Found - GET https://registry.example/no-such-server - Not found",
  ],
  ["Python's last line", PYTHON, "ModuleNotFoundError: No module named 'mcp'"],
  ["a setting that is missing, above a farewell", "API_KEY is required\nbye\n", "API_KEY is required"],
  ["the latest of several reasons", "error: first\nfatal: second\nbye\n", "fatal: second"],
  ["the last line, where none names a reason", "starting\nlistening\n", "listening"],
  ["a line that has no end yet", "starting\npermission denied", "permission denied"],
  ["the last line that says anything, above brackets", "ready\n}\n])\n", "ready"],
  ["nothing, where nothing was said", "", undefined],
  ["nothing, where only a stack was left", "    at a (b:1:2)\n    at c (d:3:4)\n", undefined],
  ["no more than a word: an errorless run is no reason", "0 errors\nready\n", "ready"],
  ["a line without what the child was given to keep", "error: bad key given-secret\n", "error: bad key <redacted>"],
];
for (const [name, text, words] of cases) {
  test(`the likely cause is ${name}`, () => assert.equal(tailOf(text).likelyCause(), words));
}
