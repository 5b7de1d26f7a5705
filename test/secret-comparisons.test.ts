/**
 * Secrets are compared in constant time: wherever the code compares two values of which one is named like a secret, it
 * does so with `timingSafeEqual` over digests. Found by reading the sources; what only looks like one is listed.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { test } from "node:test";

const root = process.cwd();

/** What a secret, or something made from one, is called at the end of its name. */
const SECRET =
  /(?:password|passphrase|secret|api_?key|credential|cookie|signature|digest|mac|hash|session_?id|access_?token|refresh_?token|bearer)s?$/i;
const LITERAL = /^(?:undefined|null|true|false|-?\d|["'`]|typeof\b)/;
const OPERAND = String.raw`[\w$#.?[\]"']+(?:\([^()]*\))?`;
const COMPARISON = new RegExp(String.raw`(?:typeof )?(${OPERAND})\s*(?:===|!==|==|!=)\s*(${OPERAND})`, "g");
const METHOD = new RegExp(
  String.raw`(${OPERAND})\.(?:equals|includes|startsWith|endsWith|localeCompare|indexOf)\(([^()]*)\)`,
  "g",
);

/** File and text → why its time tells nobody anything. */
const NO_SECRET: Readonly<Record<string, string>> = {
  "src/app/watch.ts: found.digest === loadedDigest": "digests of configuration files, for the watcher only",
  "src/record/trace/redact.ts: value === secret": "a request's own values, to hide copies where it is shown",
  "src/app/watch.ts: one.digest === other.digest": "digests of configuration files, for the watcher only",
  "src/admin/endpoints/mcp.ts: one.hash === hash": "digests of definitions that the caller was shown",
  "src/kubernetes/data-plane-deployment.ts: applied.get(key) === hash":
    "digests of documents that the controller wrote itself",
  'src/store/signing-key.ts: shown.toString("base64url") !== signature': "both sides are what the client sent",
  "src/mcp/logins/server-login.ts: tokens.accessToken !== refused": "two tokens of the gateway's own vault",
  "src/mcp/logins/server-login.ts: now.tokens.accessToken !== tokens.accessToken":
    "two tokens of the gateway's own vault",
  "src/mcp/session/client-questions.ts: this.#vault?.secret !== secret": "two values of the gateway's own signing key",
  "src/mcp/replicas/replica-bus.ts: this.#sealer?.secret !== secret": "two values of the gateway's own signing key",
  "src/mcp/session/session-store.ts: shortSessionId(session.id) === shown": "the short id that operators see",
  "src/policies/rate-limit/bucket-store.ts: this.#hashes[slot] === hash": "where a bucket lies in a table",
};

function comparisonsIn(file: string, text: string): string[] {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|\s)\/\/.*$/gm, "$1");
  const found: string[] = [];
  for (const match of code.matchAll(COMPARISON)) {
    const [whole = "", left = "", right = ""] = match;
    if (whole.startsWith("typeof ") || LITERAL.test(left) || LITERAL.test(right)) continue;
    if (isSecret(left) || isSecret(right)) found.push(`${file}: ${whole}`);
  }
  for (const [whole = "", receiver = "", argument = ""] of code.matchAll(METHOD)) {
    if (!LITERAL.test(argument) && (isSecret(receiver) || isSecret(argument))) found.push(`${file}: ${whole}`);
  }
  return found;
}

function isSecret(operand: string): boolean {
  // A length says nothing that the protocol does not; what a call returns has the name of the call.
  return SECRET.test(operand.replace(/\([^()]*\)$/, ""));
}

function sources(): [file: string, text: string][] {
  return readdirSync(join(root, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name) && !/\.test\.tsx?$/.test(entry.name))
    .map((entry) => relative(root, join(entry.parentPath ?? entry.path, entry.name)))
    .map((file) => [file, readFileSync(join(root, file), "utf8")]);
}

test("no secret is compared in a time that depends on it [V26]", () => {
  const found = sources().flatMap(([file, text]) => comparisonsIn(file, text));
  assert.deepEqual(
    found.filter((one) => NO_SECRET[one] === undefined),
    [],
  );
});

test("what looks like a comparison of secrets and is none still stands there", () => {
  const found = new Set(sources().flatMap(([file, text]) => comparisonsIn(file, text)));
  assert.deepEqual(
    Object.keys(NO_SECRET).filter((one) => !found.has(one)),
    [],
  );
});

/** Who decides by a secret, and does so with `timingSafeEqual`. */
const KEEPERS = ["src/identity/passwords/api-keys.ts", "src/identity/passwords/password-worker.ts"];
for (const file of KEEPERS) {
  test(`${file} decides with timingSafeEqual [V26]`, () => {
    assert.match(readFileSync(join(root, file), "utf8"), /\btimingSafeEqual\(/);
  });
}

const cases: [text: string, found: number][] = [
  ["if (key.digest === digest) return;", 1],
  ["return password !== expected;", 1],
  ["return entry.apiKey == given;", 1],
  ["return given.equals(entry.digest);", 1],
  ["return known.includes(sessionId);", 1],
  ["if (hash === undefined || cookie !== '') return;", 0],
  ["if (typeof secret === kind) return;", 0],
  ["// password === expected", 0],
  ["return timingSafeEqual(digest, entry.digest);", 0],
  ["if (kind === other) return;", 0],
];
for (const [text, found] of cases) {
  test(`the reader finds ${found} in ${text}`, () => assert.equal(comparisonsIn("x.ts", text).length, found));
}
