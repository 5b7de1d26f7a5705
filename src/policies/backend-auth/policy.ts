/**
 * `backendAuth`: authenticates the gateway to a backend, with its own key or by forwarding the client's verified
 * credential.
 */
import { z } from "zod";
import { ConfigError } from "../../core/config-error.ts";
import type { Exchange } from "../../core/exchange.ts";
import { definePolicy } from "../../core/policy.ts";
import { changeableHeaderName, exactlyOneOf, filePath, secret } from "../../core/schema.ts";
import { isSameHeader } from "../../http/header-rules.ts";
import { isHeaderValue } from "../../http/headers.ts";

const keyFile = z.strictObject({ file: filePath().describe("A file that contains only the key.") });

export const backendAuth = definePolicy({
  kind: "backendAuth",
  doc: "Sends the gateway's own key to the backend, or forwards the client's credential.",
  scopes: ["route", "backend"],
  schema: exactlyOneOf(
    z.strictObject({
      passthrough: z
        .strictObject({})
        .optional()
        .describe("Forwards the credential that an authentication policy read."),
      key: z
        .union([secret(), keyFile])
        .optional()
        .describe("The key, usually from an environment variable, or `{file}`."),
      header: z
        .strictObject({
          name: changeableHeaderName().describe("The header for the key."),
          prefix: z.string().optional().describe("The prefix of the key."),
        })
        .optional()
        .describe("With `key`: the header. Default: `authorization: Bearer`."),
    }),
    ["passthrough", "key"],
  ),

  compile(config, env) {
    const { key, header } = config;
    if (key === undefined) return { request: forwardCredential };
    const name = header?.name ?? "authorization";
    const prefix = header ? (header.prefix ?? "") : "Bearer ";
    const value = prefix + (typeof key === "string" ? key : env.readFile(key.file).trim());
    if (value === prefix) throw new ConfigError(undefined, "key", "the key is empty");
    if (!isHeaderValue(value))
      throw new ConfigError(undefined, "key", "the key has characters that are not allowed in a header");
    return {
      credentials: { headers: [name] },
      request(exchange) {
        send(exchange, name, value);
        return undefined;
      },
    };
  },
});

function forwardCredential(exchange: Exchange): undefined {
  if (exchange.credentials.presented)
    send(exchange, exchange.credentials.presented.header, exchange.credentials.presented.value);
  return undefined;
}

function send(exchange: Exchange, name: string, value: string): void {
  exchange.request.headers.set(name, value);
  // On a route, the header is sent to every backend, so it is no longer withheld. On a backend, the list must not
  // change, because a retry may go to a backend that must not receive the credential.
  if (exchange.attributes.backend === undefined && exchange.credentials.headers) {
    exchange.credentials.headers = exchange.credentials.headers.filter((withheld) => !isSameHeader(withheld, name));
  }
}
