/** Request bodies that wait for an HTTP/2 server, as the memory accounts of the clients see them. */
import assert from "node:assert/strict";
import { createServer, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { EgressGuard } from "../../src/http/egress-guard.ts";
import { openHttp2Pool } from "../../src/http/h2/http2-pool.ts";
import { HeaderList } from "../../src/http/headers.ts";
import { eventually } from "../support/eventually.ts";

const CHUNK_BYTES = 64 * 1024;
const CHUNKS = 32;

test("the bytes of a body that wait in a stream are reported, and none after the server has read them", async (t) => {
  const streams: ServerHttp2Stream[] = [];
  const server = createServer();
  server.on("stream", (stream: ServerHttp2Stream) => void streams.push(stream));
  server.on("session", (session) => t.after(() => session.destroy()));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const target = {
    protocol: "http",
    host: "127.0.0.1",
    port: (server.address() as AddressInfo).port,
    egress: EgressGuard.for("configuration"),
  } as const;
  const pool = openHttp2Pool(target, systemClock, undefined, undefined);
  t.after(() => {
    pool.close();
    server.close();
  });
  let sent = 0;
  const reports: number[] = [];
  const source = Readable.from(
    (function* () {
      for (; sent < CHUNKS; sent++) yield Buffer.alloc(CHUNK_BYTES, "x");
    })(),
  );
  const body = Object.assign(source, { queued: (bytes: number) => void reports.push(bytes) });
  const ended = new Promise<number>((resolve, reject) => {
    let status = 0;
    pool.send(
      { method: "POST", path: "/", headers: HeaderList.of({ host: "a" }), body },
      {
        head: (code) => {
          status = code;
        },
        data: () => true,
        end: () => resolve(status),
        fail: reject,
      },
    );
  });
  await eventually("the body waits", () => reports.length > 0 && streams.length > 0);
  assert.ok(reports.every((bytes) => bytes > 0));
  assert.ok(sent < CHUNKS, "the server does not read, so the body is paused");
  const [stream] = streams;
  assert.ok(stream);
  stream.resume().once("end", () => {
    stream.respond({ ":status": 200 });
    stream.end();
  });
  assert.equal(await ended, 200);
  assert.equal(reports.at(-1), 0);
});
