/**
 * `directResponse`: the route responds itself instead of calling a backend, always or if a condition is met.
 */
import { z } from "zod";
import type { Expression } from "../../cel/expression.ts";
import { protectionBy } from "../../core/cel-attributes.ts";
import type { Exchange } from "../../core/exchange.ts";
import { bodyFor, type CompileEnv, definePolicy } from "../../core/policy.ts";
import type { Reply } from "../../core/reply.ts";
import { celSource, changeableHeaderName, headerValue } from "../../core/schema.ts";
import { HeaderList } from "../../http/headers.ts";
import { evaluatedText } from "../../policy-parts/header-changes.ts";

const MAX_CONDITIONS = 64;
/** Responses with this status or above keep requests from the backend. */
const REJECTION = 400;

const fields = {
  status: z.int().min(200).max(599).default(200).describe("The response's status."),
  body: z.string().optional().describe("The response's body."),
  bodyExpression: celSource()
    .optional()
    .describe(
      "The response's body as a CEL expression. Values other than strings are written as JSON. If it fails, the body is empty.",
    ),
  headers: z
    .record(changeableHeaderName(), headerValue())
    .optional()
    .describe("Response headers; the default content-type is text/plain."),
};

const BOTH_BODIES = { path: ["bodyExpression"], message: "use only one of `body` and `bodyExpression`" };
const hasOneBody = (value: { body?: unknown; bodyExpression?: unknown }): boolean =>
  value.body === undefined || value.bodyExpression === undefined;

const conditionalResponse = z
  .strictObject({
    condition: celSource()
      .optional()
      .describe(
        "A CEL expression, for example `random() < 0.1`. If it fails, it is not met. Without it, the entry applies to all other requests, so it must be the last.",
      ),
    ...fields,
  })
  .refine(hasOneBody, BOTH_BODIES);

const schema = z
  .strictObject({
    ...fields,
    conditional: z
      .array(conditionalResponse)
      .min(1)
      .max(MAX_CONDITIONS)
      .refine((list) => list.every(({ condition }, i) => condition !== undefined || i === list.length - 1), {
        message: "an entry without `condition` must be the last",
      })
      .optional()
      .describe(
        "Responses with conditions. The first entry whose condition is met responds; if there is none, the request goes to the backend.",
      ),
  })
  .refine(hasOneBody, BOTH_BODIES)
  .refine(
    ({ conditional, status, body, bodyExpression, headers }) =>
      conditional === undefined || (status === 200 && (body ?? bodyExpression ?? headers) === undefined),
    { path: ["conditional"], message: "with `conditional`, write the responses in its entries" },
  );

export const directResponse = definePolicy({
  kind: "directResponse",
  doc: "Returns a status, body and headers instead of calling a backend, always or on conditions.",
  scopes: ["route"],
  protection({ conditional, status }) {
    if (conditional === undefined) return status >= REJECTION ? "route" : "none";
    if (!conditional.some((entry) => entry.status >= REJECTION)) return "none";
    return protectionBy(conditional.map(({ condition }) => condition));
  },
  schema,

  compile({ conditional, ...always }, env) {
    const responses = (conditional ?? [always]).map((config) => compileResponse(config, env));
    const body = bodyFor(responses.flatMap(({ expressions }) => expressions));
    const [first] = responses;
    if (responses.length === 1 && first !== undefined && first.condition === undefined)
      return { shape: { ...body, head: (exchange) => first.respond(exchange) } };
    return {
      shape: {
        ...body,
        head: (exchange) => responses.find(({ condition }) => isMet(condition, exchange))?.respond(exchange),
      },
    };
  },
});

interface CompiledResponse {
  readonly condition: Expression | undefined;
  readonly expressions: readonly (Expression | undefined)[];
  respond(exchange: Exchange): Reply;
}

type ResponseConfig = z.output<typeof conditionalResponse>;

function compileResponse(config: ResponseConfig, env: CompileEnv): CompiledResponse {
  const { status, headers = {} } = config;
  const condition = config.condition === undefined ? undefined : env.cel(config.condition);
  const computed = config.bodyExpression === undefined ? undefined : env.cel(config.bodyExpression);
  const fixed = Buffer.from(config.body ?? "");
  const pairs = Object.entries(headers).flat();
  if ((fixed.length > 0 || computed !== undefined) && headers["content-type"] === undefined)
    pairs.push("content-type", "text/plain; charset=utf-8");
  return {
    condition,
    expressions: [condition, computed],
    // Later hooks change the headers in place, so every response gets a copy.
    respond: (exchange) => ({
      status,
      headers: new HeaderList(pairs.slice()),
      body: computed === undefined ? fixed : Buffer.from(evaluatedText(computed, exchange) ?? ""),
    }),
  };
}

function isMet(condition: Expression | undefined, exchange: Exchange): boolean {
  if (condition === undefined) return true;
  const result = condition.evaluate(exchange.celAttributes);
  return result.ok && result.value === true;
}
