import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { loadConfig } from "./load.ts";
import { fieldPlace } from "./normal-config.ts";

const TEXT = `gateways:
  a.b: { port: 3001, address: 127.0.0.2 }
mcp:
  port: \${PORT:-3000}
  targets: [{ name: x, stdio: { cmd: cat } }]
llm: { models: [{ name: m, provider: demo }] }
`;

const places: [gateway: string, field: string, place: string][] = [
  ["mcp", "port", "f:4:9: mcp.port"],
  ["a.b", "port", "f:2:16: gateways.a.b.port"],
  ["a.b", "address", "f:2:31: gateways.a.b.address"],
  // A default that nobody wrote.
  ["llm", "port", "f:6:6: llm.port"],
];
for (const [gateway, field, place] of places) {
  test(`the ${field} of ${gateway} has its place and the name that it has in the file`, () => {
    const loaded = finish(loadConfig([{ file: "f", text: TEXT }], {}));
    assert.ok(loaded.ok);
    const found = loaded.config.gateways.find(({ name }) => name === gateway);
    assert.ok(found);
    assert.equal(fieldPlace(found.place, field), place);
  });
}
