import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { connect } from "node:net";
import { test } from "node:test";
import { threadOf } from "../../src/app/threads/forwarding.ts";
import { rawClient } from "../support/mcp/client.ts";
import { startRemote } from "../support/mcp/http-server.ts";
import { startThreaded, threadedConfig, threadingNode } from "../support/threaded-gateway.ts";

const node = threadingNode();
const skip = node === undefined ? "needs Linux, and Node 22.12 or the package node-linux-<arch>" : false;

/** Two MCP routes, one for each thread. */
const names = [1, 2].map((thread) => ["a", "b", "c", "d"].find((name) => threadOf(name, 2) === thread) ?? "");
const routesTo = (url: string): string =>
  names
    .map(
      (name) => `
  - gateways: [main]
    name: ${name}
    matches: [{ path: { pathPrefix: /${name} } }]
    backends: [{ mcp: { targets: [{ name: remote, mcp: { url: "${url}" } }] } }]
`,
    )
    .join("");

interface UnixSocket {
  readonly inode: string;
  readonly name: string;
}

/** The Unix sockets with a name that the process holds, as every local user can list them. */
function namedSockets(pid: number): UnixSocket[] {
  const held = new Set(
    readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1] ?? [];
      } catch {
        return [];
      }
    }),
  );
  return readFileSync("/proc/net/unix", "utf8")
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , , , , inode = "", name]) => name !== undefined && held.has(inode))
    .map(([, , , , , , inode = "", name = ""]) => ({ inode, name }));
}

/** The status of a request with so many bytes in one header, on a connection of its own. */
async function statusWith(url: string, path: string, headerBytes: number): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on("error", () => undefined);
  const body = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n` +
      `x-pad: ${"p".repeat(headerBytes)}\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`,
  );
  let text = "";
  socket.setEncoding("latin1").on("data", (chunk: string) => {
    text += chunk;
  });
  await once(socket, "close");
  return /^HTTP\/1\.1 (\d{3}) /.exec(text)?.[1] ?? "no response";
}

test("two threads that forward requests to each other", { skip }, async (t) => {
  const server = await startRemote("http", { json: true });
  t.after(() => server.close());
  const gateway = await startThreaded(t, threadedConfig(2, routesTo(server.url)), node ?? "");

  await t.test("hold no socket that another program could connect to [T32]", async () => {
    for (const name of names) {
      const clients = Array.from({ length: 8 }, () => rawClient(`${gateway.url}/${name}`));
      for (const { status } of await Promise.all(clients.map((client) => client.initialize())))
        assert.equal(status, 200);
      assert.deepEqual(namedSockets(gateway.process.child.pid ?? 0), []);
      for (const client of clients) assert.equal((await client.call("echo", { message: "hi" })).error, undefined);
      await Promise.all(clients.map((client) => client.delete()));
    }
  });

  await t.test(
    "agree on every header size around the limit, whichever of them accepts the connection [T33]",
    async () => {
      const seen = new Set<string>();
      for (const name of names)
        for (let size = 15_600; size <= 16_400; size += 50) {
          const statuses = await Promise.all(
            Array.from({ length: 8 }, () => statusWith(gateway.url, `/${name}`, size)),
          );
          assert.equal(new Set(statuses).size, 1, `${size} bytes on route ${name}: ${statuses.join()}`);
          seen.add(statuses[0] ?? "");
        }
      // Below the limit the message has no session, above it the head is too large.
      assert.deepEqual([...seen].sort(), ["400", "431"]);
    },
  );
});
