/**
 * `transformations`: sets headers and bodies of requests and responses from CEL expressions. If the expression of a
 * `set` header fails, the header is removed, because the receiver could mistake the original value for the gateway's.
 */
import { z } from "zod";
import { type Budget, createBudget, type Expression } from "../../cel/expression.ts";
import type { Exchange } from "../../core/exchange.ts";
import { bodyFor, type CompileEnv, definePolicy } from "../../core/policy.ts";
import { celSource, changeableHeaderName, isAuthority } from "../../core/schema.ts";
import { type HeaderList, isHeaderValue } from "../../http/headers.ts";
import { evaluatedText } from "../../policy-parts/header-changes.ts";

const changes = z.strictObject({
  set: z
    .record(changeableHeaderName(), celSource())
    .optional()
    .describe(
      "Headers to set from CEL values. They replace existing headers in every spelling of the name. If an expression fails, its header is removed.",
    ),
  add: z
    .record(changeableHeaderName(), celSource())
    .optional()
    .describe(
      "Headers to add from CEL values. Existing headers with exactly this name stay; other spellings are removed. If an expression fails, nothing is added.",
    ),
  remove: z.array(changeableHeaderName()).optional().describe("Names of headers to remove, in every spelling."),
  body: celSource()
    .optional()
    .describe("The body, as a CEL expression. Values other than strings are written as JSON."),
});

export const transformations = definePolicy({
  kind: "transformations",
  doc: "Sets request and response headers, and bodies, from CEL expressions.",
  scopes: ["gateway", "route", "backend", "model"],
  protection: () => "none",
  schema: z.strictObject({
    request: changes.optional().describe("Applied to the request."),
    response: changes.optional().describe("Applied to the response."),
  }),

  compile(config, env) {
    const request = config.request ? compileChanges(config.request, env) : undefined;
    const response = config.response ? compileChanges(config.response, env) : undefined;
    const setsHost = config.request?.set?.host !== undefined;
    const all = [...(request?.expressions ?? []), ...(response?.expressions ?? [])];
    return {
      computedHeaders: [config.request, config.response].flatMap((changed) =>
        [changed?.add, changed?.set].flatMap((values) =>
          Object.entries(values ?? {}).map(([name, source]) => ({ name, source })),
        ),
      ),
      shape: {
        replaces: [...(config.request?.remove ?? []), ...Object.keys(config.request?.set ?? {})],
        ...bodyFor(all),
        ...(request
          ? {
              head(exchange: Exchange) {
                request.applyTo(exchange.request.headers, exchange);
                if (setsHost) setAuthority(exchange);
                const body = request.body(exchange);
                if (body !== undefined) {
                  exchange.request.body = { kind: "bytes", bytes: body };
                  exchange.request.headers.delete("content-encoding");
                  exchange.request.headers.delete("transfer-encoding");
                }
                return undefined;
              },
            }
          : {}),
      },
      ...(response
        ? {
            response: {
              readsBody: all.some((expression) => expression.reads("response.body")),
              head(exchange: Exchange) {
                if (!exchange.response) return;
                response.applyTo(exchange.response.headers, exchange);
                const body = response.body(exchange);
                if (body !== undefined) exchange.response.replacement = body;
              },
            },
          }
        : {}),
    };
  },
});

function compileChanges(config: z.output<typeof changes>, env: CompileEnv) {
  const set = compileValues(config.set, env);
  const add = compileValues(config.add, env);
  const remove = config.remove ?? [];
  const body = config.body === undefined ? undefined : env.cel(config.body);
  return {
    expressions: [...set, ...add].map(({ value }) => value).concat(body ? [body] : []),
    applyTo(headers: HeaderList, exchange: Exchange): void {
      for (const name of remove) headers.delete(name);
      const budget = createBudget();
      for (const { name, value } of set) headers.assert(name, headerText(value, exchange, budget));
      for (const { name, value } of add) headers.append(name, headerText(value, exchange, budget));
    },
    body(exchange: Exchange): Buffer | undefined {
      const result = body?.evaluate(exchange.celAttributes);
      if (!result?.ok) return undefined;
      return Buffer.from(typeof result.value === "string" ? result.value : JSON.stringify(result.value));
    },
  };
}

function compileValues(
  values: Readonly<Record<string, string>> | undefined,
  env: CompileEnv,
): { name: string; value: Expression }[] {
  return Object.entries(values ?? {}).map(([name, source]) => ({ name, value: env.cel(source) }));
}

/**
 * Returns undefined if the evaluation fails or the result is not a valid header value, so that requests cannot inject
 * header lines.
 */
function headerText(expression: Expression, exchange: Exchange, budget: Budget): string | undefined {
  const text = evaluatedText(expression, exchange, budget);
  return text !== undefined && isHeaderValue(text) ? text : undefined;
}

/** Sets the authority to the Host header. An invalid Host header is removed. */
function setAuthority({ request }: Exchange): void {
  const host = request.headers.get("host");
  request.host = host !== undefined && isAuthority(host) ? host : "";
  if (request.host === "") request.headers.delete("host");
}
