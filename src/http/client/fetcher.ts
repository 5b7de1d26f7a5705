/**
 * Sends the gateway's own outgoing requests (http/fetch.ts). Connections are pooled per owner, origin, TLS options, and
 * guard.
 */

import type { Clock } from "../../base/clock.ts";
import { type OwnedKey, type Owner, ownedKey } from "../../base/owner.ts";
import type { EgressGuard } from "../egress-guard.ts";
import { type Fetch, FetchError, type Fetcher, type FetchRequest, parseHttpUrl } from "../fetch.ts";
import { HeaderList } from "../headers.ts";
import { hostToConnect } from "../host.ts";
import type { HttpClientError, HttpPool } from "../http-client.ts";
import { openHttpPool } from "./http-pool.ts";

/** Servers and clients can name URLs too, so the pools without connections are closed when there are many. */
const MANY_POOLS = 64;

export function openFetcher(clock: Clock, egress: EgressGuard): Fetcher {
  const pools = new Map<OwnedKey, HttpPool>();
  let sweepAt = MANY_POOLS;

  function poolFor(owner: Owner, url: URL, { tls, egress: further, socketPath }: FetchRequest): HttpPool {
    const guard = egress.and(further);
    const key = ownedKey(owner, `${url.origin} ${guard.key} ${tls ? JSON.stringify(tls) : ""} ${socketPath ?? ""}`);
    const known = pools.get(key);
    if (known) return known;
    if (pools.size >= sweepAt) closeUnused();
    const protocol = url.protocol === "https:" ? "https" : "http";
    const port = url.port === "" ? (protocol === "https" ? 443 : 80) : Number(url.port);
    const host = hostToConnect(url);
    const through = socketPath === undefined ? {} : { socketPath };
    const pool = openHttpPool({ protocol, host, port, egress: guard, ...through, ...(tls ? { tls } : {}) }, clock);
    pools.set(key, pool);
    return pool;
  }

  function closeUnused(): void {
    for (const [key, pool] of pools) {
      if (pool.connections().open > 0) continue;
      pool.close();
      pools.delete(key);
    }
    sweepAt = Math.max(MANY_POOLS, 2 * pools.size);
  }

  const fetchFor =
    (owner: Owner): Fetch =>
    (request) =>
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
        const call = poolFor(owner, url, request).send(
          { method: request.method ?? "GET", path: url.pathname + url.search, headers, body: request.body },
          {
            head(code, list) {
              status = code;
              responseHeaders = list;
            },
            data(chunk) {
              bytes += chunk.length;
              if (bytes > request.input.maxBytes)
                return stop(new FetchError("too-large", `the response is larger than ${request.input.maxBytes} bytes`));
              chunks.push(chunk);
              return true;
            },
            end() {
              timer.cancel();
              resolve({ status, headers: responseHeaders, body: Buffer.concat(chunks) });
            },
            fail(error) {
              timer.cancel();
              reject(new FetchError(isRefusal(error) ? "refused" : "network", error.message, error));
            },
          },
        );
      });

  return {
    of: fetchFor,
    close() {
      for (const pool of pools.values()) pool.close();
      pools.clear();
    },
  };
}

/** True if all addresses of the host are refused (EgressGuard.refusal). */
function isRefusal({ cause }: HttpClientError): boolean {
  return cause instanceof Error && "code" in cause && cause.code === "EACCES";
}
