/**
 * Sends JSON requests to the Kubernetes API server and reads line-based watches. Credentials come from the pod's
 * ServiceAccount or from a kubeconfig.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import { LineSplitter, LineTooLong } from "../base/line-splitter.ts";
import { peerInput } from "../base/peer-inputs.ts";
import { VERSION } from "../base/version.ts";
import { openHttpPool } from "../http/client/http-pool.ts";
import { EgressGuard } from "../http/egress-guard.ts";
import { HeaderList } from "../http/headers.ts";
import { hostToConnect } from "../http/host.ts";
import type { HttpPool, TlsOptions } from "../http/http-client.ts";
import { tryReadJson } from "../json/read-json.ts";
import { KubeconfigError, type KubeconfigFlags, loadCluster, type PluginHost } from "./kubeconfig.ts";

/** A write that takes longer fails, because leadership may have ended. */
export const WRITE_TIMEOUT_MS = 5_000;
const RESPONSE = peerInput("kubernetes-api/response");
const ERROR_RESPONSE = peerInput("kubernetes-api/error");
const EVENT = peerInput("kubernetes-api/watch-event");
const WATCH_LINES = peerInput("kubernetes-api/watch-lines");

const MAX_RESPONSE_BYTES = 128 * 1024 * 1024;
const REQUEST_TIMEOUT_MS = 30_000;

type PatchType = "application/merge-patch+json" | "application/apply-patch+yaml" | "application/json";

export interface ApiRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly body?: unknown;
  readonly type?: PatchType;
  readonly timeoutMs?: number;
}

export interface WatchHandler {
  event(value: unknown): void;
  /** Called last, unless the watch was stopped. `error` is undefined if the server ended the watch. */
  end(error: Error | undefined): void;
}

export interface ApiClient {
  /** Rejects with an ApiError for a status other than 2xx, and with another Error for other failures. */
  request(request: ApiRequest): Promise<unknown>;
  /**
   * Returns a function that stops the watch, after which no callback runs. The watch also ends after `idleMs` without
   * data.
   */
  watch(path: string, handler: WatchHandler, idleMs: number): () => void;
  close(): void;
}

export function openApiClient(access: ClusterAccess, clock: Clock): ApiClient {
  const pools = new Map<string, HttpPool>();

  function poolOf({ server, tls }: Credentials): HttpPool {
    const key = `${server} ${JSON.stringify(tls)}`;
    const known = pools.get(key);
    if (known) return known;
    // The server or its TLS settings changed, so the old pools are closed.
    for (const pool of pools.values()) pool.close();
    pools.clear();
    const url = new URL(server);
    const protocol = url.protocol === "https:" ? "https" : "http";
    const port = url.port === "" ? (protocol === "https" ? 443 : 80) : Number(url.port);
    const pool = openHttpPool(
      { protocol, host: hostToConnect(url), port, tls, egress: EgressGuard.for("configuration") },
      clock,
    );
    pools.set(key, pool);
    return pool;
  }

  function headersOf({ server, headers }: Credentials, type: string | undefined, length: number): HeaderList {
    const list = HeaderList.of({ accept: "application/json", "user-agent": `gateway/${VERSION}`, ...headers });
    list.set("host", new URL(server).host);
    if (type !== undefined) list.set("content-type", type);
    if (type !== undefined) list.set("content-length", String(length));
    return list;
  }

  const pathOf = ({ server }: Credentials, path: string): string =>
    `${new URL(server).pathname.replace(/\/+$/, "")}${path}`;

  function responseError(status: number, text: string): ApiError {
    if (status === 401) access.refused();
    return apiError(status, tryReadJson(ERROR_RESPONSE, text));
  }

  return {
    request({ method, path, body, type = "application/json", timeoutMs = REQUEST_TIMEOUT_MS }) {
      const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
      return new Promise((resolve, reject) => {
        const chunks: Buffer[] = [];
        let status = 0;
        let size = 0;
        let isOver = false;
        let abort = (): void => undefined;
        const finish = (settle: () => void): void => {
          if (isOver) return;
          isOver = true;
          timer.cancel();
          settle();
        };
        // The timeout also covers obtaining the credentials, for which a plugin may run.
        const timer = clock.after(timeoutMs, () => {
          abort();
          finish(() => reject(new Error(`timeout: no response from the API server within ${timeoutMs} ms`)));
        });
        const send = (credentials: Credentials): void => {
          if (isOver) return;
          const headers = headersOf(credentials, bytes && type, bytes?.length ?? 0);
          const call = poolOf(credentials).send(
            { method, path: pathOf(credentials, path), headers, body: bytes },
            {
              head: (code) => {
                status = code;
              },
              data(chunk) {
                size += chunk.length;
                if (size <= MAX_RESPONSE_BYTES) return chunks.push(chunk) > 0;
                call.abort();
                finish(() => reject(new Error("the response of the API server is too large")));
                return false;
              },
              end() {
                const text = Buffer.concat(chunks).toString();
                const isGood = status >= 200 && status < 300;
                finish(() => (isGood ? resolve(tryReadJson(RESPONSE, text)) : reject(responseError(status, text))));
              },
              fail: (error) => finish(() => reject(error)),
            },
          );
          abort = () => call.abort();
        };
        access
          .credentials()
          .then(send)
          .catch((error: Error) => finish(() => reject(error)));
      });
    },

    watch(path, handler, idleMs) {
      let isOver = false;
      let stop = (): void => undefined;
      const finish = (error: Error | undefined): void => {
        if (isOver) return;
        isOver = true;
        idle.cancel();
        stop();
        handler.end(error);
      };
      let idle = clock.after(idleMs, () => finish(new Error("the watch was silent for too long")));
      const resetIdleTimer = (): void => {
        idle.cancel();
        idle = clock.after(idleMs, () => finish(new Error("the watch was silent for too long")));
      };
      access.credentials().then(
        (credentials) => {
          if (isOver) return;
          let status = 0;
          const lines = new LineSplitter(WATCH_LINES, (line) => {
            if (!isOver && status === 200) handler.event(tryReadJson(EVENT, line));
          });
          const pushLines = (chunk: Buffer): void => {
            try {
              lines.push(chunk);
            } catch (error) {
              if (!(error instanceof LineTooLong)) throw error;
              finish(new Error("a line of the watch is too long"));
            }
          };
          const refused: Buffer[] = [];
          let refusedBytes = 0;
          const call = poolOf(credentials).send(
            { method: "GET", path: pathOf(credentials, path), headers: headersOf(credentials, undefined, 0) },
            {
              head: (code) => {
                status = code;
              },
              data(chunk) {
                resetIdleTimer();
                if (status === 200) {
                  pushLines(chunk);
                  return true;
                }
                refusedBytes += chunk.length;
                if (refusedBytes <= ERROR_RESPONSE.maxBytes) return refused.push(chunk) > 0;
                finish(responseError(status, ""));
                return false;
              },
              end: () => finish(status === 200 ? undefined : responseError(status, Buffer.concat(refused).toString())),
              fail: finish,
            },
          );
          stop = () => call.abort();
        },
        (error: Error) => finish(error),
      );
      return () => {
        if (isOver) return;
        isOver = true;
        idle.cancel();
        stop();
      };
    },

    close() {
      for (const pool of pools.values()) pool.close();
      pools.clear();
    },
  };
}

export class ApiError extends Error {
  readonly status: number;
  /** The server sets the reason, for example `Conflict` or `Expired`. */
  readonly reason: string;

  constructor(status: number, reason: string, message: string) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.reason = reason;
  }
}

export function apiError(status: number, body: unknown): ApiError {
  const { code, reason, message } = (typeof body === "object" && body !== null ? body : {}) as {
    code?: unknown;
    reason?: unknown;
    message?: unknown;
  };
  return new ApiError(
    typeof code === "number" ? code : status,
    typeof reason === "string" ? reason : "",
    typeof message === "string" ? message : `the API server answered ${status}`,
  );
}

export interface Credentials {
  readonly server: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsOptions;
}

export interface ClusterAccess {
  readonly namespace: string;
  credentials(): Promise<Credentials>;
  /** Call this after the server rejected the credential, so that the next request obtains a new one. */
  refused(): void;
}

const ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount";

export interface AccessOptions extends PluginHost {
  readonly flags: KubeconfigFlags;
  readonly accountFolder?: string;
}

export async function openClusterAccess(options: AccessOptions): Promise<ClusterAccess> {
  const { flags, environment } = options;
  const isNamed =
    flags.kubeconfig !== undefined || flags.context !== undefined || (environment.KUBECONFIG ?? "") !== "";
  const host = environment.KUBERNETES_SERVICE_HOST;
  if (!isNamed && host !== undefined && host !== "")
    return accountAccess(host, environment.KUBERNETES_SERVICE_PORT ?? "443", options.accountFolder ?? ACCOUNT_FOLDER);
  return kubeconfigAccess(flags, options);
}

function accountAccess(host: string, port: string, folder: string): ClusterAccess {
  const read = (name: string): string => {
    try {
      return readFileSync(join(folder, name), "utf8").trim();
    } catch (error) {
      throw new KubeconfigError(`cannot read the pod's ServiceAccount: ${(error as Error).message}`);
    }
  };
  const server = `https://${host.includes(":") ? `[${host}]` : host}:${port}`;
  return {
    namespace: read("namespace"),
    credentials: async () => ({
      server,
      headers: { authorization: `Bearer ${read("token")}` },
      tls: { ca: read("ca.crt") },
    }),
    refused: () => undefined,
  };
}

async function kubeconfigAccess(flags: KubeconfigFlags, host: PluginHost): Promise<ClusterAccess> {
  let loading = loadCluster(flags, host);
  const { namespace } = await loading;
  let isRefused = false;
  return {
    namespace,
    credentials() {
      if (isRefused) {
        isRefused = false;
        const before = loading;
        // If the plugin fails, its previous credential may still be valid.
        loading = loadCluster(flags, host).catch(() => before);
      }
      return loading;
    },
    refused() {
      isRefused = true;
    },
  };
}
