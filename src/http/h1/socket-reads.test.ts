import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, Socket } from "node:net";
import { after, test } from "node:test";
import { borrowingReader, readOpened, readOptions, setFastReads, socketReader } from "./socket-reads.ts";

const servers: Server[] = [];
const sockets: Socket[] = [];
after(() => {
  for (const socket of sockets) socket.destroy();
  for (const server of servers) server.close();
});

/** Both ends of a connection. */
async function pair(): Promise<{ client: Socket; accepted: Socket }> {
  const server = createServer({ allowHalfOpen: true });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [accepted] = (await once(server, "connection")) as [Socket];
  sockets.push(client, accepted);
  return { client, accepted };
}

/** Resolves when the collected text has reached the length. */
function collect(length: number): { add(chunk: Buffer): void; whole: Promise<Buffer[]> } {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const { promise, resolve } = withResolvers<Buffer[]>();
  return {
    add(chunk) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes >= length) resolve(chunks);
    },
    whole: promise,
  };
}

function withResolvers<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

test("this Node version supports fast reads of accepted sockets and child output", async () => {
  const { client, accepted } = await pair();
  const came = collect(5);
  const reads = readOpened(
    accepted,
    socketReader((chunk) => {
      came.add(chunk);
      return true;
    }),
  );
  assert.equal(reads, true);
  accepted.on("data", () => assert.fail("no data events"));
  client.write("hello");
  assert.equal(Buffer.concat(await came.whole).toString(), "hello");

  const child = spawn(process.execPath, ["-e", "process.stdout.write('from a child')"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  let text = "";
  const borrows = borrowingReader((bytes) => {
    text += bytes.toString();
    return true;
  });
  assert.equal(readOpened(child.stdout as Socket, borrows), true);
  await once(child, "close");
  assert.equal(text, "from a child");
});

test("received bytes do not change when other sockets read", async () => {
  const size = 300_000;
  const all = await Promise.all(
    Array.from({ length: 8 }, async (_, i) => {
      const { client, accepted } = await pair();
      const came = collect(size);
      readOpened(
        accepted,
        socketReader((chunk) => {
          came.add(chunk);
          return true;
        }),
      );
      for (let at = 0; at < size; at += 1000) client.write(Buffer.alloc(1000, i + 1));
      return { came, i };
    }),
  );
  for (const { came, i } of all) {
    const bytes = Buffer.concat(await came.whole);
    assert.equal(bytes.length, size);
    assert.ok(bytes.equals(Buffer.alloc(size, i + 1)), `connection ${i} has bytes of others`);
  }
});

test("a paused socket reads nothing, and continues when it is resumed; the end is reported", async () => {
  const { client, accepted } = await pair();
  const first = collect(1);
  const second = collect(2);
  const reader = socketReader(function (chunk) {
    first.add(chunk);
    second.add(chunk);
    if (chunk.toString() === "a") this.pause();
    return true;
  });
  readOpened(accepted, reader);
  client.write("a");
  await first.whole;
  const before = accepted.bytesRead;
  await new Promise<void>((resolve) => client.write("b", () => setImmediate(resolve)));
  assert.equal(accepted.bytesRead, before);
  assert.equal(accepted.isPaused(), true);
  accepted.resume();
  assert.deepEqual((await second.whole).map(String), ["a", "b"]);
  const ended = once(accepted, "end");
  client.end();
  await ended;
});

test("a socket that is taken over is read as a stream, with back-pressure", async () => {
  const { client, accepted } = await pair();
  readOpened(
    accepted,
    socketReader(function (chunk) {
      return this.push(chunk);
    }),
  );
  accepted.pause();
  const size = 4 * 1024 * 1024;
  client.end(Buffer.alloc(size, 7));
  let bytes = 0;
  for await (const chunk of accepted) bytes += (chunk as Buffer).length;
  assert.equal(bytes, size);
});

test("other sockets are not affected", () => {
  class Other extends Socket {}
  const reader = socketReader(() => true);
  assert.equal(readOpened(new Other(), reader), false);
  assert.equal(readOpened(new Socket(), reader), false, "it is not open");
});

test("with fast reads off, an accepted socket is read by its data events", async () => {
  const { client, accepted } = await pair();
  const reader = socketReader(() => assert.fail("read into the shared buffer"));
  setFastReads(false);
  try {
    assert.equal(readOpened(accepted, reader), false);
    assert.deepEqual(
      readOptions(() => true),
      {},
    );
  } finally {
    setFastReads(true);
  }
  client.write("hello");
  const [chunk] = (await once(accepted, "data")) as [Buffer];
  assert.equal(chunk.toString(), "hello");
});
