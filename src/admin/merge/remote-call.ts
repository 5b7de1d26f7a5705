/**
 * Forwards an admin request to another thread over a message port that only this request uses. The response is a value
 * or a stream of chunks. The port closes after the response, or when the thread exits.
 */
import type { MessagePort } from "node:worker_threads";
import { readForm } from "../../base/form.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import {
  type AdminEndpoint,
  type AdminRequest,
  type AdminResponse,
  type AdminSink,
  textResponse,
} from "../server/endpoint.ts";

const QUERY = peerInput("admin-client/query");

export interface RemoteRequest {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly body: Uint8Array;
  readonly quota?: SharedArrayBuffer | undefined;
}

interface Head {
  readonly status: number;
  readonly type: string;
  readonly headers?: Readonly<Record<string, string>>;
}

type FromThread =
  | { readonly kind: "response"; readonly head: Head; readonly body: string | Uint8Array }
  | { readonly kind: "stream"; readonly head: Head }
  | { readonly kind: "chunk"; readonly chunk: string | Uint8Array }
  | { readonly kind: "end" };

type ToThread =
  | { readonly kind: "begin" }
  /** Acknowledges `bytes`. `buffered` is the number of bytes that the reader has not read yet. */
  | { readonly kind: "taken"; readonly bytes: number; readonly buffered: number }
  /** Ends the stream after the chunks that were already sent. */
  | { readonly kind: "finish" }
  | { readonly kind: "close" };

export async function remoteRequest(request: AdminRequest): Promise<RemoteRequest> {
  const { method, path, query, quota } = request;
  return {
    method,
    path,
    query: query.toString(),
    body: method === "POST" ? await request.body() : Buffer.alloc(0),
    quota,
  };
}

export async function handleRemote(
  received: RemoteRequest,
  endpoints: readonly AdminEndpoint[],
  port: MessagePort,
): Promise<void> {
  const send = (message: FromThread): void => port.postMessage(message);
  const endpoint = endpoints.find(({ path }) => path === received.path);
  const handler = received.method === "POST" ? endpoint?.POST : endpoint?.GET;
  let response: AdminResponse;
  try {
    const request: AdminRequest = {
      method: received.method,
      path: received.path,
      query: readForm(QUERY, received.query),
      body: () => Promise.resolve(Buffer.from(received.body)),
      quota: received.quota,
    };
    response = handler ? await handler(request) : textResponse(404, "no such endpoint\n");
  } catch (error) {
    response = textResponse(500, `${error instanceof Error ? error.message : String(error)}\n`);
  }
  const { status, type, headers } = response;
  const head: Head = { status, type, ...(headers ? { headers } : {}) };
  if (!("stream" in response)) {
    send({ kind: "response", head, body: response.body });
    port.close();
    return;
  }
  const { stream } = response;
  let unread = 0;
  let behind = 0;
  const closed: (() => void)[] = [];
  let isOpen = true;
  const close = (): void => {
    if (!isOpen) return;
    isOpen = false;
    for (const one of closed) one();
  };
  const sink: AdminSink = {
    write(chunk) {
      if (!isOpen) return false;
      unread += chunk.length;
      send({ kind: "chunk", chunk });
      return unread + behind === 0;
    },
    end() {
      if (!isOpen) return;
      send({ kind: "end" });
      close();
      port.close();
    },
    onClose: (callback) => void closed.push(callback),
    bufferedBytes: () => unread + behind,
  };
  port.on("message", (message: ToThread) => {
    if (message.kind === "begin") stream(sink);
    else if (message.kind === "finish") sink.end();
    else if (message.kind === "close") {
      close();
      port.close();
    } else {
      unread -= message.bytes;
      behind = message.buffered;
    }
  });
  port.on("close", close);
  send({ kind: "stream", head });
}

/** Runs in the requesting thread. If the other thread exits before it responds, the response is 503. */
export function readRemote(port: MessagePort): Promise<AdminResponse> {
  return new Promise((resolve) => {
    let sink: AdminSink | undefined;
    let isOver = false;
    const over = (): void => {
      if (isOver) return;
      isOver = true;
      sink?.end();
      port.close();
    };
    const stream = (reader: AdminSink): void => {
      sink = reader;
      reader.onClose(() => {
        isOver = true;
        port.postMessage({ kind: "close" } satisfies ToThread);
        port.close();
      });
      reader.onFinish?.(() => port.postMessage({ kind: "finish" } satisfies ToThread));
      port.postMessage({ kind: "begin" } satisfies ToThread);
    };
    port.on("message", (message: FromThread) => {
      if (message.kind === "response") {
        const { body } = message;
        resolve({ ...message.head, body: typeof body === "string" ? body : Buffer.from(body) });
        over();
      } else if (message.kind === "stream") resolve({ ...message.head, stream });
      else if (message.kind === "end") over();
      else {
        const chunk = typeof message.chunk === "string" ? message.chunk : Buffer.from(message.chunk);
        sink?.write(chunk);
        const buffered = sink?.bufferedBytes() ?? 0;
        port.postMessage({ kind: "taken", bytes: chunk.length, buffered } satisfies ToThread);
      }
    });
    port.on("close", () => {
      resolve(textResponse(503, "the thread exited before it responded\n"));
      over();
    });
  });
}
