/**
 * What the server says in one POST or GET: texts become messages in the order in which they came, large ones in turns
 * with everybody else's, and what ends the exchange waits for them.
 */
import { InOrder, type InOrderEvents } from "../../base/in-order.ts";
import { finish, SLICED_BYTES } from "../../base/turns.ts";
import { wireIdOf } from "../protocol/json-rpc.ts";
import type { ChannelHandlers } from "./channel.ts";
import type { HttpExchange } from "./http-exchange.ts";
import { type BrokenMessage, type ReadMessages, readServerTextInSteps } from "./incoming.ts";
import type { RemoteServer } from "./remote-server.ts";

/** Of the body of a failure; secrets in it are hidden before some of it is shown. */
const MAX_SAID_CHARS = 64 * 1024;
const SHOWN_CHARS = 200;

export function readText(
  exchange: HttpExchange,
  text: string,
  events: () => InOrderEvents,
  done: (messages: ReadMessages) => void,
): void {
  const steps = readServerTextInSteps(text);
  const isSmall = text.length <= SLICED_BYTES;
  if (isSmall && exchange.texts === undefined) {
    done(finish(steps));
    return;
  }
  exchange.texts ??= new InOrder(events());
  exchange.texts.run(steps, isSmall, done);
}

/** Once everything that came before is read. */
export function afterTexts({ texts }: HttpExchange, last: () => void): void {
  if (texts === undefined) last();
  else texts.afterwards(last);
}

/** Returns why there is no answer in them; undefined where nothing is wrong. */
export function takeMessages(
  exchange: HttpExchange,
  messages: ReadMessages,
  handlers: ChannelHandlers,
  broken: (message: BrokenMessage) => void,
): string | undefined {
  let problem = messages.length === 0 ? "did not send a JSON-RPC message" : undefined;
  for (const message of messages) {
    if (message.kind === "broken") {
      problem = message.reason;
      broken(message);
    } else if (message.kind === "request" || message.kind === "notification")
      handlers.message(message, exchange.wireId);
    // Its own answer is all that the stream of a request may bring; other calls have theirs.
    else if (exchange.wireId !== undefined && wireIdOf(message) !== exchange.wireId)
      problem = "answered under an id that is not the request's";
    else {
      exchange.isAnswered = true;
      handlers.message(message, exchange.wireId);
    }
  }
  return problem;
}

export function isBlank(text: string): boolean {
  return text.length < MAX_SAID_CHARS && text.trim() === "";
}

/** Why a body that was no answer failed the call. */
export function bodyFailure(server: RemoteServer, status: number, text: string, problem: string | undefined): string {
  if (status < 300) return problem ?? "sent no response";
  const said = server.shown(text.slice(0, MAX_SAID_CHARS).trim()).slice(0, SHOWN_CHARS);
  return said === "" ? `answered with status ${status}` : `answered with status ${status}: ${said}`;
}
