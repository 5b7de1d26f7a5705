/**
 * gRPC through the gateway: one answer, streams in each direction and in both, statuses, deadlines, and policies in between.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import {
  Client,
  type ClientReadableStream,
  credentials,
  Metadata,
  type MethodDefinition,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from "@grpc/grpc-js";
import { gatewayFor } from "../support/scenario.ts";

const bytes = (text: string): Buffer => Buffer.from(text);
const text = (buffer: Buffer): string => buffer.toString();

function method(name: string, requestStream: boolean, responseStream: boolean): MethodDefinition<string, string> {
  return {
    path: `/test.Echo/${name}`,
    requestStream,
    responseStream,
    requestSerialize: bytes,
    requestDeserialize: text,
    responseSerialize: bytes,
    responseDeserialize: text,
  };
}

const UNARY = method("Unary", false, false);
const DOWN = method("Down", false, true);
const UP = method("Up", true, false);
const BOTH = method("Both", true, true);

async function grpcServer(t: TestContext): Promise<number> {
  const server = new Server();
  server.addService(
    { Unary: UNARY, Down: DOWN, Up: UP, Both: BOTH },
    {
      Unary(call: ServerUnaryCall<string, string>, done: sendUnaryData<string>) {
        if (call.request === "fail") {
          const metadata = new Metadata();
          metadata.set("x-why", "because");
          done({ code: status.FAILED_PRECONDITION, details: "not now", metadata });
        } else if (call.request !== "never") done(null, `${call.request}!`);
      },
      Down(call: ServerWritableStream<string, string>) {
        for (let i = 0; i < 100; i++) call.write(`${call.request} ${i} ${"x".repeat(2000)}`);
        call.end();
      },
      Up(call: ServerReadableStream<string, string>, done: sendUnaryData<string>) {
        let count = 0;
        call.on("data", () => {
          count += 1;
        });
        call.on("end", () => done(null, String(count)));
      },
      Both(call: ServerDuplexStream<string, string>) {
        call.on("data", (message: string) => call.write(`${message}?`));
        call.on("end", () => call.end());
      },
    },
  );
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    ),
  );
  t.after(() => server.forceShutdown());
  return port;
}

async function setup(t: TestContext, policies = ""): Promise<Client> {
  const port = await grpcServer(t);
  const gateway = await gatewayFor(
    t,
    `gateways: { default: { port: 0 } }
routes: [{ backends: [{ host: "127.0.0.1:${port}", protocol: h2c }]${policies === "" ? "" : `, policies: { ${policies} }`} }]
`,
  );
  const client = new Client(`127.0.0.1:${gateway.port()}`, credentials.createInsecure());
  t.after(() => client.close());
  return client;
}

function unary(client: Client, message: string, deadlineMs?: number): Promise<string> {
  const options = deadlineMs === undefined ? {} : { deadline: Date.now() + deadlineMs };
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(UNARY.path, bytes, text, message, new Metadata(), options, (error, answer) =>
      error ? reject(error) : resolve(answer ?? ""),
    );
  });
}

function messagesOf(stream: ClientReadableStream<string>): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const messages: string[] = [];
    stream.on("data", (message: string) => messages.push(message));
    stream.on("error", reject);
    stream.on("end", () => resolve(messages));
  });
}

test("a call has its answer, a failure its code, its text and its metadata", async (t) => {
  const client = await setup(t);
  assert.deepEqual(await Promise.all(["a", "b", "c"].map((one) => unary(client, one))), ["a!", "b!", "c!"]);
  await assert.rejects(unary(client, "fail"), (error: { code: number; details: string; metadata: Metadata }) => {
    assert.deepEqual([error.code, error.details], [status.FAILED_PRECONDITION, "not now"]);
    assert.deepEqual(error.metadata.get("x-why"), ["because"]);
    return true;
  });
});

test("streams pass in each direction and in both", async (t) => {
  const client = await setup(t);
  const down = client.makeServerStreamRequest(DOWN.path, bytes, text, "m");
  const messages = await messagesOf(down);
  assert.equal(messages.length, 100);
  assert.match(messages[99] ?? "", /^m 99 x{2000}$/);

  const count = await new Promise<string>((resolve, reject) => {
    const up = client.makeClientStreamRequest(UP.path, bytes, text, (error, answer) =>
      error ? reject(error) : resolve(answer ?? ""),
    );
    for (let i = 0; i < 50; i++) up.write("x".repeat(3000));
    up.end();
  });
  assert.equal(count, "50");

  const both = client.makeBidiStreamRequest(BOTH.path, bytes, text);
  for (const message of ["one", "two", "three"]) {
    const answer = new Promise<string>((resolve) => both.once("data", resolve));
    both.write(message);
    assert.equal(await answer, `${message}?`, "answered while the request goes on");
  }
  const rest = messagesOf(both);
  both.end();
  assert.deepEqual(await rest, []);
});

test("a call that is given up is given up at the server", async (t) => {
  const client = await setup(t);
  await assert.rejects(unary(client, "never", 300), { code: status.DEADLINE_EXCEEDED });
  assert.equal(await unary(client, "after"), "after!");
});

test("a refusal of the gateway reaches the client as a gRPC failure", async (t) => {
  const client = await setup(t, `authorization: { rules: ['request.headers["x-a"] == "yes"'] }`);
  await assert.rejects(unary(client, "a"), { code: status.PERMISSION_DENIED });
});
