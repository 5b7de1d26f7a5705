import assert from "node:assert/strict";
import { test } from "node:test";
import { Command } from "commander";
import { addTargetOptions, adminAddressOf, portOf } from "./target.ts";

test("without -p a command uses port 15000 [S4.4-11]", () => {
  assert.match(addTargetOptions(new Command()).helpInformation(), /--admin-port <port>[^-]*\(default\s+15000\)/);
});

test("an admin port can have a loopback address", () => {
  assert.deepEqual(adminAddressOf("-p", "15001"), { host: "127.0.0.1", port: 15001 });
  assert.deepEqual(adminAddressOf("-p", "[::1]:15001"), { host: "::1", port: 15001 });
  assert.deepEqual(adminAddressOf("-p", "localhost:15001"), { host: "localhost", port: 15001 });
  for (const text of ["192.0.2.1:15000", "gateway.example:15000", ":15000", "[::]:15000"])
    assert.throws(() => adminAddressOf("-p", text), /loopback address such as \[::1\]:15000/);
  assert.throws(() => adminAddressOf("-p", "[::1]:0"), /from 1 to 65535/);
});

test("a port is a number from 1 to 65535", () => {
  assert.equal(portOf("-p", "15001"), 15001);
  for (const text of ["0", "65536", "-1", "1e3", ""]) assert.throws(() => portOf("-p", text), /from 1 to 65535/);
});
