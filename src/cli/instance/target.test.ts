import assert from "node:assert/strict";
import { test } from "node:test";
import { Command } from "commander";
import { portOf, withTarget } from "./target.ts";

test("without -p a command uses port 15000 [S4.4-11]", () => {
  assert.match(withTarget(new Command()).helpInformation(), /--admin-port <port>\s+admin port[^\n]*\(default 15000\)/);
});

test("a port is a number from 1 to 65535", () => {
  assert.equal(portOf("-p", "15001"), 15001);
  for (const text of ["0", "65536", "-1", "1e3", ""]) assert.throws(() => portOf("-p", text), /from 1 to 65535/);
});
