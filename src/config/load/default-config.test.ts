import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultListenHint } from "./default-config.ts";

const WHY = "cannot listen on *:1: the address is already in use";

const moved: [said: string, tail: string][] = [
  [`gateways.default.port: ${WHY}`, " (the environment variable PORT moves this port)"],
  [`gateways.llm.port: ${WHY}`, " (the environment variable LLM_PORT moves this port)"],
  [`config.adminAddr: ${WHY}`, " (the environment variable ADMIN_PORT moves this port)"],
  ["something else", ""],
];
for (const [said, tail] of moved) {
  test(`of the embedded default, ${JSON.stringify(said.split(":")[0])} ${tail === "" ? "is left alone" : "says what moves it"}`, () => {
    assert.equal(defaultListenHint(said), `${said}${tail}`);
    if (tail !== "") assert.equal(defaultListenHint(`<default>:3:5: ${said}`), `${said}${tail}`);
  });
}
