/**
 * `/debug/trace` (spec 4.2, 6): the events of the next request, as JSON over server-sent events. The first bytes are a
 * comment that says the trace is armed, so that a client knows when to send its request. Experimental (spec 9).
 */

import type { Clock } from "../../base/clock.ts";
import { compileExpression, type Expression, ExpressionError } from "../../cel/expression.ts";
import type { Exchange } from "../../core/exchange.ts";
import { MAX_WATCHERS, type TraceHub } from "../../observe/trace/hub.ts";
import { type AdminAnswer, type AdminEndpoint, type AdminRequest, textAnswer } from "../server/endpoint.ts";
import { eventStreamAnswer } from "../server/event-stream.ts";
import { numberParameter } from "../server/parameter.ts";
import { ADMIN_PATHS } from "../server/paths.ts";

/** The places of the numbers that threads share. */
const WANTED = 0;
const UNFINISHED = 1;
const COUNT = { name: "count", min: 1, max: 1000, default: 1 };
/** What is known when a request arrives, before any policy has looked at it. */
const KNOWN_AT_ARRIVAL = new Set(["request", "source", "client", "env", "proxy"]);

export function traceEndpoint(hub: TraceHub<Exchange>, clock: Clock): AdminEndpoint {
  const open = (request: AdminRequest): AdminAnswer => watch(request, hub, clock);
  return {
    path: ADMIN_PATHS.trace,
    doc: "Events of the next request (experimental). ?expression=<CEL> waits for a matching request, ?count=N traces several.",
    GET: open,
    POST: open,
  };
}

function watch({ query, quota }: AdminRequest, hub: TraceHub<Exchange>, clock: Clock): AdminAnswer {
  const count = numberParameter(query, COUNT);
  if (!count.ok) return count.refusal;
  const matcher = matcherOf(query.get("expression"));
  if (typeof matcher === "string") return textAnswer(400, `invalid expression: ${matcher}\n`);

  if (hub.isFull()) return textAnswer(429, `${MAX_WATCHERS} traces are open already; close one and try again\n`);
  return eventStreamAnswer(clock, (stream) => {
    // Other threads may take some of the requests that are wanted, or all of them.
    const shared = quota && new Int32Array(quota);
    let unfinished = count.value;
    const withdraw = hub.wait({
      count: count.value,
      matches: shared ? (exchange) => matcher(exchange) && claims(shared) : matcher,
      begin: (exchange) => ({
        // Several requests share the stream, and may overlap: each event then says whose it is.
        event: (event) => stream.data(count.value === 1 ? event : { ...event, requestId: exchange.id }),
        finished() {
          unfinished = shared ? Atomics.sub(shared, UNFINISHED, 1) - 1 : unfinished - 1;
          if (unfinished === 0) stream.end();
        },
      }),
    });
    if (withdraw) stream.comment("armed: waiting for a request");
    else stream.end();
    return withdraw ?? (() => undefined);
  });
}

function claims(shared: Int32Array): boolean {
  return Atomics.sub(shared, WANTED, 1) > 0;
}

/** A test for the exchange, or what is wrong with the expression. */
function matcherOf(source: string | null): ((exchange: Exchange) => boolean) | string {
  if (source === null || source.trim() === "") return () => true;
  let expression: Expression;
  try {
    expression = compileExpression(source);
  } catch (error) {
    if (error instanceof ExpressionError) return error.message;
    throw error;
  }
  const unknown = [...expression.attributes].find((name) => !KNOWN_AT_ARRIVAL.has(name));
  if (unknown !== undefined)
    return `\`${unknown}\` is not known yet when a request arrives; use \`request\`, \`source\` and \`client\``;
  if (expression.paths.has("request.body")) return "`request.body` is not known yet when a request arrives";
  return (exchange) => {
    const result = expression.evaluate(exchange.attributes);
    return result.ok && result.value === true;
  };
}
