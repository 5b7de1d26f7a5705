import assert from "node:assert/strict";
import { test } from "node:test";
import { rawClient } from "../../../test/support/mcp/client.ts";
import { stdioFixture } from "../../../test/support/mcp/fixture.ts";
import { serveMcp } from "../../../test/support/mcp/serve-backend.ts";

const ONE = { targets: [{ name: "odd", stdio: stdioFixture("odd-server") }] };

test("a client opens a session, calls a tool and ends the session", async () => {
  const served = await serveMcp(ONE);
  const client = rawClient(served.url);
  const opened = await client.initialize();
  assert.equal(opened.status, 200);
  assert.equal(opened.headers.get("content-type"), "text/event-stream");
  assert.match(opened.headers.get("mcp-session-id") ?? "", /^[0-9a-f]{32}$/);
  assert.equal(opened.message.id, "init");
  assert.equal(opened.message.result.serverInfo.title, "The odd server");
  const called = await client.call("echo", { message: "hello" });
  assert.deepEqual(called.result.content, [{ type: "text", text: "hello" }]);
  assert.equal(await client.delete(), 204);
  assert.equal((await client.post({ jsonrpc: "2.0", id: 1, method: "ping" })).status, 404);
  await served.close();
  assert.deepEqual(served.tasks.report(), []);
});
