/**
 * Implements the HTTP+SSE transport (2024-11-05). The server sends all messages on one event stream, which also
 * announces the endpoint for POSTs. The endpoint must have the origin of the stream, so that a server cannot redirect
 * messages.
 */

import type { Clock, Timer } from "../../base/clock.ts";
import { InOrder } from "../../base/in-order.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { SLICED_BYTES } from "../../base/sliced-work.ts";
import type { HttpCall } from "../../http/http-client.ts";
import type { SseEvent } from "../../http/sse.ts";
import type { OneWayMessage } from "./one-way-queue.ts";
import type { RemoteServer } from "./remote-server.ts";
import { type ParsedMessages, parseServerTextInSteps, reportBroken } from "./server-messages.ts";
import { type Channel, type ChannelHandlers, type Outgoing, TOO_MANY_REQUESTS } from "./transport.ts";

const MESSAGE = peerInput("mcp-server/event");

const OPEN_TIMEOUT_MS = 30_000;
const ACCEPT_MS = 30_000;
const MAX_POSTS = 1_024;

interface Post {
  readonly wireId: number | undefined;
  readonly oneWay: OneWayMessage | undefined;
  readonly timer: Timer;
  call: HttpCall | undefined;
}

/**
 * Calls `opened` after the server announced its endpoint, or `refused` with the reason. Returns a function that cancels
 * the attempt.
 */
export function openSseChannel(
  server: RemoteServer,
  clock: Clock,
  handlers: ChannelHandlers,
  opened: (channel: Channel) => void,
  refused: (reason: string) => void,
): () => void {
  let endpoint: string | undefined;
  let isOver = false;
  let isPaused = false;
  let stream: HttpCall | undefined;
  const posts = new Set<Post>();

  const forget = (post: Post): void => {
    posts.delete(post);
    post.timer.cancel();
    const { oneWay } = post;
    if (oneWay) (oneWay.message.method === undefined ? answers : notifications).release(oneWay);
  };
  const drop = (post: Post): void => {
    forget(post);
    post.call?.abort();
  };
  const stop = (): void => {
    isOver = true;
    timer.cancel();
    stream?.abort();
    answers.close();
    notifications.close();
    for (const post of [...posts]) drop(post);
  };
  const over = (reason: string): void => {
    if (isOver) return;
    stop();
    if (endpoint === undefined) refused(reason);
    else handlers.closed(reason);
  };
  const timer = clock.after(OPEN_TIMEOUT_MS, () => over("did not send its endpoint in time"));

  const post = (message: Outgoing, oneWay?: OneWayMessage): void => {
    const headers = ["content-type", "application/json", "accept", "application/json", ...(message.headers ?? [])];
    const { wireId } = message;
    let status = 0;
    const failed = (reason: string): void => {
      forget(sent);
      if (!isOver && wireId !== undefined) handlers.failed(wireId, reason);
    };
    const late = (): void => {
      drop(sent);
      failed("did not accept the message in time");
    };
    const sent: Post = { wireId, oneWay, call: undefined, timer: clock.after(ACCEPT_MS, late) };
    posts.add(sent);
    sent.call = server.send(
      { method: "POST", path: endpoint as string, headers, body: message.text, wire: message.wire },
      {
        head: (code) => {
          status = code;
        },
        event: () => undefined,
        body: (text) => {
          if (status >= 300) failed(server.rejection(status, text));
        },
        mayRead: () => true,
        end: () => forget(sent),
        error: failed,
      },
    );
  };
  const sendOneWay = (queued: OneWayMessage): void => post(queued.message, queued);
  const answers = server.oneWayQueue("answers", sendOneWay);
  const notifications = server.oneWayQueue("notifications", sendOneWay);

  const channel: Channel = {
    address: server.address,
    get isOverloaded() {
      return posts.size > MAX_POSTS;
    },
    setProtocol: () => undefined,
    send(message) {
      if (isOver || endpoint === undefined) return;
      if (message.wireId !== undefined) post(message);
      else if (message.method !== undefined) notifications.send(message);
      else if (!answers.send(message)) over(TOO_MANY_REQUESTS);
    },
    abandon: (wireId) => {
      for (const sent of posts) if (sent.wireId === wireId) drop(sent);
    },
    pause: () => {
      isPaused = true;
    },
    resume: () => {
      isPaused = false;
      goOn();
    },
    close() {
      stop();
      return Promise.resolve();
    },
    detail: () => ({ address: server.address, transport: "sse" }),
  };

  const event = ({ event: type, data }: SseEvent): void => {
    if (isOver) return;
    if (type === "endpoint" && endpoint === undefined) {
      const url = resolve(data, server.url);
      if (url === undefined) over("sent an endpoint of another origin");
      else {
        endpoint = url;
        timer.cancel();
        opened(channel);
      }
    } else if (type === "message") texts.run(parseServerTextInSteps(MESSAGE, data), data.length <= SLICED_BYTES, read);
  };
  const read = (messages: ParsedMessages): void => {
    for (const message of messages) {
      if (isOver) return;
      if (message.kind === "broken") reportBroken(message, handlers, channel.send);
      else handlers.message(message, undefined);
    }
  };
  const goOn = (): void => {
    if (!isPaused && !texts.isBusy) stream?.resume();
  };
  const texts = new InOrder({
    busy: () => undefined,
    idle: goOn,
    failed: () => over("sent a message that could not be handled"),
    isOver: () => isOver,
  });
  stream = server.send(
    { method: "GET", headers: ["accept", "text/event-stream"] },
    {
      head: (status) => {
        if (status !== 200) over(`answered with status ${status}`);
      },
      event,
      body: () => undefined,
      mayRead: () => !isPaused && !texts.isBusy,
      afterParsing: (parsed) => texts.afterwards(parsed),
      end: () => texts.afterwards(() => over("ended its event stream")),
      error: (reason) => texts.afterwards(() => over(reason)),
    },
  );
  return () => stop();
}

/** Returns the path and the query, or undefined if the URL is invalid or its origin differs. */
function resolve(endpoint: string, base: URL): string | undefined {
  try {
    const url = new URL(endpoint.trim(), base);
    return url.origin === base.origin ? url.pathname + url.search : undefined;
  } catch {
    return undefined;
  }
}
