/**
 * Sends the gateway's own outgoing requests (http/fetch.ts). Connections are pooled per origin, TLS options, and
 * `isConfined`.
 */

import type { Clock } from "../../base/clock.ts";
import { FetchError, type Fetcher, parseHttpUrl } from "../fetch.ts";
import { HeaderList } from "../headers.ts";
import type { HttpPool, TlsOptions } from "../http-client.ts";
import { openHttpPool } from "./http-pool.ts";

export function openFetcher(clock: Clock): Fetcher {
  const pools = new Map<string, HttpPool>();

  function poolFor(
    url: URL,
    tls: TlsOptions | undefined,
    isConfined: boolean,
    socketPath: string | undefined,
  ): HttpPool {
    const key = `${url.origin} ${isConfined} ${tls ? JSON.stringify(tls) : ""} ${socketPath ?? ""}`;
    const known = pools.get(key);
    if (known) return known;
    const protocol = url.protocol === "https:" ? "https" : "http";
    const port = url.port === "" ? (protocol === "https" ? 443 : 80) : Number(url.port);
    const host = url.hostname.replace(/^\[|\]$/g, "");
    const through = socketPath === undefined ? {} : { socketPath };
    const pool = openHttpPool({ protocol, host, port, isConfined, ...through, ...(tls ? { tls } : {}) });
    pools.set(key, pool);
    return pool;
  }

  return {
    fetch: (request) =>
      new Promise((resolve, reject) => {
        const url = parseHttpUrl(request.url);
        if (!url) {
          reject(new FetchError("bad-url", `${request.url} is not an http or https URL`));
          return;
        }
        const headers = HeaderList.of({ accept: "application/json", ...request.headers });
        headers.set("host", url.host);
        const chunks: Buffer[] = [];
        let bytes = 0;
        let status = 0;
        let responseHeaders = new HeaderList();
        const stop = (error: FetchError): boolean => {
          timer.cancel();
          call.abort();
          reject(error);
          return false;
        };
        const timer = clock.after(request.timeoutMs, () => {
          stop(new FetchError("timeout", `no response within ${request.timeoutMs} ms`));
        });
        const call = poolFor(url, request.tls, request.isConfined === true, request.socketPath).send(
          { method: request.method ?? "GET", path: url.pathname + url.search, headers, body: request.body },
          {
            head(code, list) {
              status = code;
              responseHeaders = list;
            },
            data(chunk) {
              bytes += chunk.length;
              if (bytes > request.maxBytes)
                return stop(new FetchError("too-large", `the response is larger than ${request.maxBytes} bytes`));
              chunks.push(chunk);
              return true;
            },
            end() {
              timer.cancel();
              resolve({ status, headers: responseHeaders, body: Buffer.concat(chunks) });
            },
            fail(error) {
              timer.cancel();
              reject(new FetchError("network", error.message, error));
            },
          },
        );
      }),
    close() {
      for (const pool of pools.values()) pool.close();
      pools.clear();
    },
  };
}
