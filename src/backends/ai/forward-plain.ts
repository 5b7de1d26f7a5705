/**
 * What is sent to a provider without being an LLM call: a list of models, files, forms. It goes to the first target
 * as it came, with the provider's credential, below the provider's base path.
 */
import type { BackendCall, BackendRun } from "../../core/backend.ts";
import { GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { modelsPathOf } from "../../llm/dialect.ts";
import type { ModelTable } from "./model-table.ts";
import { NativeAnswer } from "./native-answer.ts";
import { type PlanEnv, upstreamRequest } from "./upstream-request.ts";

/** The provider's own base path takes the place of the client's up to and with its version. */
const VERSION = /^.*?\/(?:v1|v1beta)(?=\/|$)/;

export function forwardPlain(table: ModelTable, exchange: Exchange, call: BackendCall, env: PlanEnv): BackendRun {
  const target = table.targets[0];
  const { request } = exchange;
  if (!target) throw new GatewayError("no_backend");
  if (target.sign) throw new GatewayError("not_found", { message: "only model calls can be sent to this provider" });
  const models = modelsPathOf(request.path);
  const suffix = models
    ? `/models${models.name === undefined ? "" : `/${encodeURIComponent(models.name)}`}`
    : request.path.replace(VERSION, "");
  const path = target.pathOverride ?? `${target.basePath}${suffix}`;
  const { body } = request;
  const sent = upstreamRequest(
    exchange,
    {
      call: { format: "opaque", suffix, model: "", stream: false, counts: false, query: request.query },
      path: request.query === "" ? path : `${path}?${request.query}`,
      body: body.kind === "bytes" ? [body.bytes] : [],
      clientFormat: "opaque",
      translation: undefined,
      context: {
        model: "",
        stream: false,
        maxTokensMember: "max_tokens",
        newId: env.newId,
        createdSeconds: 0,
        includeUsage: false,
      },
      hidesUsage: false,
    },
    { target, model: "" },
  );
  if (body.kind === "stream") {
    body.taken = true;
    if (body.length === undefined) sent.headers.delete("content-length");
    else sent.headers.set("content-length", String(body.length));
  } else if (body.kind === "none") sent.headers.delete("content-length");
  call.attempt(target.display);
  const answer = new NativeAnswer(call, "opaque", { firstByte: ignore, counted: ignore, nothing: ignore }, false);
  let answering = false;
  return target.upstream.send(body.kind === "stream" ? { ...sent, body: body.stream } : sent, {
    head(status, headers) {
      answering = true;
      answer.head(status, headers);
    },
    data: (chunk) => answer.data(chunk),
    end: (trailers) => answer.end(trailers),
    error: (error) => (answering ? answer.fail(error) : call.fail(error)),
  });
}

function ignore(): void {
  // Nothing is counted here.
}
