import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { bcryptProblem, createBcrypt } from "./bcrypt.ts";

/** Of `crypt(3)`: the password "U*U" and its published hash, and one of 72 bytes whose rest does not count. */
const KNOWN: [password: string, hash: string, matches: boolean][] = [
  ["U*U", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", true],
  ["U*U", "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", true],
  ["U*V", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", false],
  ["", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", false],
];

for (const [password, hash, expected] of KNOWN) {
  test(`${JSON.stringify(password)} ${expected ? "matches" : "does not match"} ${hash.slice(0, 7)}`, async () => {
    assert.equal(await createBcrypt(fakeClock()).matches(password, hash), expected);
  });
}

const broken: [name: string, start: () => Worker][] = [
  [
    "cannot be started",
    () => {
      throw new Error("no threads here");
    },
  ],
  ["throws", () => new Worker("throw new Error('x')", { eval: true })],
  ["ends without an answer", () => new Worker("process.exit(0)", { eval: true })],
];
for (const [name, start] of broken) {
  test(`a thread that ${name} costs nobody a login`, async () => {
    const bcrypt = createBcrypt(fakeClock(), start);
    const [password, hash] = KNOWN[0] as [string, string, boolean];
    assert.equal(await bcrypt.matches(password, hash), true);
    assert.equal(await bcrypt.matches("other", hash), false);
  });
}

test("forms and costs", () => {
  const hash = "CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
  assert.equal(bcryptProblem(`$2b$10$${hash}`), "none");
  assert.match(bcryptProblem(`$2b$15$${hash}`) ?? "", /cost of 15 is not between 4 and 14/);
  assert.match(bcryptProblem(`$2b$03$${hash}`) ?? "", /cost of 3/);
  assert.equal(bcryptProblem(`$2x$10$${hash}`), undefined);
  assert.equal(bcryptProblem(`$2b$10$${hash}x`), undefined);
});
