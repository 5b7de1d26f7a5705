/** A server that accepts a connection and never completes the TLS handshake. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { EgressGuard } from "../egress-guard.ts";
import { HeaderList } from "../headers.ts";
import { openHttpPool } from "./http-pool.ts";

for (const http of ["http1", "http2"] as const)
  for (const connectTimeoutMs of [undefined, 2_000])
    test(`${http}: a connection fails after ${connectTimeoutMs ?? "the default of 10000"} ms`, async (t) => {
      const server = createServer();
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      const clock = fakeClock();
      const { port } = server.address() as AddressInfo;
      const egress = EgressGuard.for("configuration");
      const timeout = connectTimeoutMs === undefined ? {} : { connectTimeoutMs };
      const target = {
        protocol: "https",
        host: "127.0.0.1",
        port,
        http,
        tls: { insecure: true },
        egress,
        ...timeout,
      } as const;
      const pool = openHttpPool(target, clock);
      const accepted = once(server, "connection");
      let failure: string | undefined;
      pool.send(
        { method: "GET", path: "/", headers: HeaderList.of({ host: "server" }) },
        {
          head: () => undefined,
          data: () => true,
          end: () => undefined,
          fail: ({ message }) => {
            failure = message;
          },
        },
      );
      const [socket] = (await accepted) as [Socket];
      t.after(() => {
        pool.close();
        socket.destroy();
        server.close();
      });
      const limitMs = connectTimeoutMs ?? 10_000;
      await clock.advance(limitMs - 1);
      assert.equal(failure, undefined);
      await clock.advance(1);
      assert.equal(failure, `no connection within ${limitMs} ms`);
    });
