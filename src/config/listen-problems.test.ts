import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultListenHint, placedListenProblem } from "./listen-problems.ts";

const TEXT = `config: { adminAddr: "127.0.0.1:15001" }
gateways:
  a.b: { port: 3001, address: 127.0.0.2 }
mcp:
  port: \${PORT:-3000}
  targets: [{ name: x, stdio: { cmd: cat } }]
llm: { models: [{ name: m, provider: demo }] }
`;
const WHY = "cannot listen on *:1: the address is already in use";

const placed: [said: string, shown: string][] = [
  [`gateways.mcp.port: ${WHY}`, `f:5:9: mcp.port: ${WHY}`],
  [`gateways.a.b.port: ${WHY}`, `f:3:16: gateways.a.b.port: ${WHY}`],
  [`gateways.a.b.address: ${WHY}`, `f:3:31: gateways.a.b.address: ${WHY}`],
  // A default that nobody wrote: the section it belongs to.
  [`gateways.llm.port: ${WHY}`, `f:7:6: llm.port: ${WHY}`],
  [`config.adminAddr: ${WHY}`, `f:1:22: config.adminAddr: ${WHY}`],
];
for (const [said, shown] of placed) {
  test(`${said.split(" ")[0]} gets its place and the name it has in the file`, () => {
    assert.equal(placedListenProblem(said, [{ file: "f", text: TEXT }], {}), shown);
  });
}

const kept: [name: string, said: string, text: string][] = [
  ["an admin address that no file says", `config.adminAddr: ${WHY}`, "gateways: { a: { port: 0 } }"],
  ["a gateway of another document", `gateways.other.port: ${WHY}`, TEXT],
  ["a problem of another kind", "f:1:1: gateways.mcp.port: required field is missing", TEXT],
  ["a file that was broken meanwhile", `gateways.mcp.port: ${WHY}`, "mcp: ["],
];
for (const [name, said, text] of kept) {
  test(`${name} is left as it was said`, () => {
    assert.equal(placedListenProblem(said, [{ file: "f", text }], {}), said);
  });
}

const moved: [said: string, tail: string][] = [
  [`gateways.default.port: ${WHY}`, " (the environment variable PORT moves this port)"],
  [`gateways.llm.port: ${WHY}`, " (the environment variable LLM_PORT moves this port)"],
  [`config.adminAddr: ${WHY}`, " (with a file of your own: `-f` and `config.adminAddr`)"],
  ["something else", ""],
];
for (const [said, tail] of moved) {
  test(`of the embedded default, ${JSON.stringify(said.split(":")[0])} ${tail === "" ? "is left alone" : "says what moves it"}`, () => {
    assert.equal(defaultListenHint(said), `${said}${tail}`);
  });
}
