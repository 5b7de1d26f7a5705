import assert from "node:assert/strict";
import { openSync } from "node:fs";
import { test } from "node:test";
import { createInheritedSockets } from "../../pipeline/listen/inherited-sockets.ts";
import { createHandedSockets, listeningInodes } from "./handed-sockets.ts";
import type { HandedSocket } from "./messages.ts";

const socket: HandedSocket = { fd: 4, name: "main", kind: "listener", port: 8080, family: 4 };

test("the number of threads counts, also while one of them has no socket", () => {
  assert.equal(createHandedSockets([]).threads, 0);
  assert.equal(createHandedSockets([socket]).threads, 1, "a version without threads");
  assert.equal(createHandedSockets([{ ...socket, thread: 1, threads: 2 }]).threads, 2);
  assert.equal(createHandedSockets([{ ...socket, kind: "process", name: "operators" }]).threads, 0);
});

test("no listener takes a socket that was closed because it was unused", () => {
  const fd = openSync("/dev/null", "r");
  const handed = createHandedSockets([{ ...socket, fd }]);
  const inherited = createInheritedSockets([...handed.forListeners, { fd: 3, name: "other", port: 9090 }]);
  handed.closeUnused(inherited);
  assert.equal(inherited.take({ name: "main", port: 8080 }), undefined);
  assert.equal(inherited.take({ name: "other", port: 9090 }), 3, "sockets of the service manager stay");
});

test("sockets of several threads have the same local address", () => {
  const row = (inode: number): string =>
    `   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0 100 0 0 10 0`;
  const table = ["  sl  local_address", row(11), row(12), row(13).replace(" 0A ", " 01 ")].join("\n");
  assert.deepEqual(listeningInodes(table), [
    { inode: "11", local: "0100007F:1F90", port: 8080 },
    { inode: "12", local: "0100007F:1F90", port: 8080 },
  ]);
});
