import assert from "node:assert/strict";
import { test } from "node:test";
import { createInheritedSockets, inheritedSockets, portOfInode } from "./inherited-sockets.ts";

const ports = new Map([
  [3, 8080],
  [4, 8443],
]);
const portOf = (fd: number): number | undefined => ports.get(fd);

test("the sockets of systemd, with their names and ports", () => {
  const environment = { LISTEN_FDS: "3", LISTEN_PID: "42", LISTEN_FDNAMES: "web:tls" };
  assert.deepEqual(inheritedSockets(environment, 42, portOf), [
    { fd: 3, name: "web", port: 8080 },
    { fd: 4, name: "tls", port: 8443 },
    { fd: 5, name: "", port: undefined },
  ]);
});

const none: [name: string, environment: Record<string, string>][] = [
  ["nothing is set", {}],
  ["they are another process's", { LISTEN_FDS: "1", LISTEN_PID: "41" }],
  ["the process is not named", { LISTEN_FDS: "1" }],
  ["there are none", { LISTEN_FDS: "0", LISTEN_PID: "42" }],
  ["the count is no number", { LISTEN_FDS: "1x", LISTEN_PID: "42" }],
  ["the count is negative", { LISTEN_FDS: "-1", LISTEN_PID: "42" }],
  ["the count is beyond reason", { LISTEN_FDS: "1000000", LISTEN_PID: "42" }],
];
for (const [name, environment] of none)
  test(`no sockets are inherited when ${name}`, () => assert.deepEqual(inheritedSockets(environment, 42, portOf), []));

test("a listener takes the socket of its port, else the one of its name, and each once", () => {
  const sockets = createInheritedSockets([
    { fd: 3, name: "llm", port: 8080 },
    { fd: 4, name: "web", port: undefined },
    { fd: 5, name: "spare", port: 9000 },
  ]);
  assert.equal(sockets.take({ name: "other", port: 1 }), undefined);
  assert.equal(sockets.take({ name: "llm", port: 8080 }), 3);
  assert.equal(sockets.take({ name: "llm", port: 8080 }), undefined);
  assert.equal(sockets.take({ name: "web", port: 80 }), 4);
  assert.deepEqual(
    sockets.unused().map(({ name }) => name),
    ["spare"],
  );
});

test("the port is read from Linux's table, for listening sockets only", () => {
  const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1 0 100 0 0 10 0
   1: 0100007F:1F91 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1235 1 0 20 4 30 10 -1
   2: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1236 1`;
  assert.equal(portOfInode(table, "1234"), 8080);
  assert.equal(portOfInode(table, "1235"), undefined);
  assert.equal(portOfInode(table, "1236"), 443);
  assert.equal(portOfInode(table, "99"), undefined);
});
