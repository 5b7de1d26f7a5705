/**
 * gwctl before something that is no admin interface, or one that breaks off: one line that says so, never a stack
 * trace, never a success that is none.
 */
import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Server } from "node:net";
import { type TestContext, test } from "node:test";
import { gwctl } from "../support/gwctl.ts";

async function portOf(t: TestContext, server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => new Promise((resolve) => server.close(resolve)));
  return String((server.address() as AddressInfo).port);
}

const answering = (t: TestContext, answer: RequestListener): Promise<string> => portOf(t, createServer(answer));

const STARTED = '{"eventStart":null,"eventEnd":1,"severity":"info","message":{"type":"requestStarted"}}';

const commands = [
  ["requests"],
  ["requests", "--follow"],
  ["status"],
  ["explain", "some-id"],
  ["policies"],
  ["cel", "1 + 1"],
  ["proxy", "config", "all"],
  ["proxy", "config", "routes"],
  ["proxy", "tasks"],
  ["proxy", "targets"],
  ["proxy", "memory"],
  ["proxy", "limits"],
  ["proxy", "log"],
  ["proxy", "profile", "heap", "-o", "/dev/null"],
  ["proxy", "trace"],
  ["proxy", "trace", "--raw"],
];

test("a server of another kind that says 200 to everything is not taken for a gateway", async (t) => {
  const port = await answering(t, (_req, res) => {
    res.writeHead(200, { "content-type": "application/json" });
    res.end('{"hello":"world"}');
  });
  for (const args of commands) {
    const { code, stdout, stderr } = await gwctl([...args, "-p", port]);
    assert.equal(code, 1, args.join(" "));
    assert.equal(stdout, "", args.join(" "));
    assert.match(stderr, /^gwctl: [^\n]*is that a gateway's admin interface\?[^\n]*\n$/, args.join(" "));
  }
});

const strangers: [name: string, answer: RequestListener][] = [
  ["redirects", (_req, res) => void res.writeHead(302, { location: "/login" }).end()],
  ["knows no such path", (_req, res) => void res.writeHead(404).end("route not found")],
  ["answers with a page", (_req, res) => void res.writeHead(200, { "content-type": "text/html" }).end("<html>")],
];
for (const [name, answer] of strangers) {
  test(`a server that ${name} is asked about`, async (t) => {
    const port = await answering(t, answer);
    for (const args of [["requests"], ["proxy", "trace"]]) {
      const { code, stderr } = await gwctl([...args, "-p", port]);
      assert.equal(code, 1);
      assert.match(stderr, /^gwctl: [^\n]*is that a gateway's admin interface\?[^\n]*\n$/);
    }
  });
}

test("a port that does not speak HTTP is said to be one", async (t) => {
  const port = await portOf(
    t,
    createTcpServer((socket) => {
      socket.on("error", () => undefined).resume();
      socket.end("SSH-2.0-example\r\n");
    }),
  );
  const { code, stderr } = await gwctl(["requests", "-p", port]);
  assert.equal(code, 1);
  assert.match(stderr, /does not speak HTTP/);
});

test("an answer that breaks off is a failure", async (t) => {
  const port = await answering(t, (_req, res) => {
    res.writeHead(200, { "content-type": "application/json", "content-length": "1000" });
    res.write('{"routes":', () => res.destroy());
  });
  const { code, stdout, stderr } = await gwctl(["proxy", "config", "all", "-p", port]);
  assert.equal(code, 1);
  assert.equal(stdout, "");
  assert.match(stderr, /closed the connection before the response was complete/);
});

test("a trace that breaks off shows what came, and fails", async (t) => {
  const port = await answering(t, (_req, res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.write(`: armed\n\ndata: ${STARTED}\n\ndata: {"eventSta`, () => res.destroy());
  });
  const { code, stdout, stderr } = await gwctl(["proxy", "trace", "--raw", "-p", port]);
  assert.equal(code, 1);
  assert.equal(stdout, `${STARTED}\n`);
  assert.match(stderr, /gwctl: the trace ended early[^\n]*\n$/);
});

test("a trace that ends before a request arrived says so", async (t) => {
  const port = await answering(t, (_req, res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.end(": armed\n\n");
  });
  const { code, stderr } = await gwctl(["proxy", "trace", "-p", port]);
  assert.equal(code, 1);
  assert.match(stderr, /closed the trace before a request arrived/);
});

for (const line of ['{"nonsense":1}', "{broken", "null", '{"message":{"type":1},"eventEnd":1}']) {
  test(`the line ${line} in a trace is one line of error, not a stack trace`, async (t) => {
    const port = await answering(t, (_req, res) => {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(`: armed\n\ndata: ${line}\n\n`);
    });
    const { code, stderr } = await gwctl(["proxy", "trace", "-p", port]);
    assert.equal(code, 1);
    assert.match(stderr, /^(?:waiting[^\n]*\n)?gwctl: not a trace event: [^\n]*\n$/);
  });
}

test("what a server says in a refusal cannot move the cursor [G3]", async (t) => {
  const port = await answering(t, (_req, res) => void res.writeHead(500).end("x\u001b[31mred\nsecond line"));
  const { stderr } = await gwctl(["requests", "-p", port]);
  assert.match(stderr, /^gwctl: x\\u001b\[31mred\n {2}second line\n$/);
});
