import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { loadConfig } from "../load/load.ts";
import { exposedAdminWarnings } from "./check-config.ts";

function warningsOf(settings: string): string[] {
  const loaded = finish(loadConfig([{ file: "f", text: `config: { ${settings} }\n` }], {}));
  assert.ok(loaded.ok);
  return exposedAdminWarnings(loaded.config, loaded.standalone).map((warning) => warning.toLine());
}

const exposed = ["0.0.0.0:15000", "10.1.2.3:0", "[::]:15000", "[2001:db8::1]:1", "[::ffff:10.0.0.1]:1"];
for (const address of exposed) {
  test(`the admin address ${address} is warned about, and the warning names what it exposes`, () => {
    const [warning = "", ...others] = warningsOf(`adminAddr: "${address}"`);
    assert.deepEqual(others, []);
    assert.match(warning, /^f:1:\d+: config\.adminAddr: other machines can reach the admin interface at /);
    assert.ok(warning.includes(` at ${address}, `), warning);
    assert.match(warning, /no authentication.*read the configuration, requests, and traces, create API keys, and stop/);
    assert.match(warningsOf(`adminAddr: "${address}", allowConfigEdit: true`)[0] ?? "", /change the configuration/);
  });
}

const local = [
  "127.0.0.1:15000",
  "127.9.9.9:0",
  "localhost:1",
  "[::1]:15000",
  "[::ffff:127.0.0.1]:1",
  "unix:/a",
  "off",
];
for (const address of local)
  test(`the admin address ${address} is not warned about`, () =>
    assert.deepEqual(warningsOf(`adminAddr: "${address}"`), []));

test("the default is not warned about", () => assert.deepEqual(warningsOf(""), []));
