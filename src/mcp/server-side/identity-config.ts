/**
 * How a remote server learns who the caller is: by the caller's own token, by one that is exchanged for it (RFC 8693), or
 * by headers with what is known of the caller. Alternatives to a login of its own (`oauth`).
 */
import { z } from "zod";
import { celSource, httpUrl, secret } from "../../core/schema.ts";
import { forwardedHeaderName } from "../transports/forwarded-header.ts";

const TOKEN_TYPE = "urn:ietf:params:oauth:token-type:";

const exchangeSchema = z
  .strictObject({
    tokenUrl: httpUrl().describe("The token endpoint of the identity provider."),
    clientId: z.string().min(1).describe("The gateway's client id there."),
    clientSecret: secret().optional().describe("The client's secret, if it has one."),
    audience: z.string().min(1).optional().describe("The server, as the identity provider knows it."),
    resource: httpUrl().optional().describe("The server's URL, for providers that know it by that."),
    scopes: z
      .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/))
      .optional()
      .describe("Default: what the provider gives."),
    subjectTokenType: z
      .enum(["access_token", "jwt", "id_token"])
      .default("access_token")
      .transform((name) => `${TOKEN_TYPE}${name}`)
      .describe("What the provider is told that the caller's token is."),
  })
  .refine(({ audience, resource }) => audience !== undefined || resource !== undefined, {
    message: "set `audience` or `resource`: a token for everything would be one for other servers too",
  });

export const identitySchema = z
  .strictObject({
    token: z
      .literal(true)
      .optional()
      .describe("Send the caller's own token. Only for servers that are meant by its audience."),
    exchange: exchangeSchema
      .optional()
      .describe("Send a token that the identity provider gives in exchange for the caller's (RFC 8693)."),
    headers: z
      .record(forwardedHeaderName(), celSource())
      .optional()
      .describe("Headers with CEL values, for example `x-user: jwt.sub`. A client's own value never passes."),
  })
  .superRefine(({ token, exchange, headers }, context) => {
    if (token !== undefined && exchange !== undefined)
      context.addIssue({ code: "custom", message: "use only one of `token` and `exchange`" });
    if (token === undefined && exchange === undefined && Object.keys(headers ?? {}).length === 0)
      context.addIssue({ code: "custom", message: "set `token`, `exchange` or `headers`" });
    if ((token ?? exchange) !== undefined && Object.hasOwn(headers ?? {}, "authorization"))
      context.addIssue({ code: "custom", path: ["headers"], message: "the token is in the authorization header" });
  });

export type IdentityConfig = z.output<typeof identitySchema>;
export type ExchangeConfig = z.output<typeof exchangeSchema>;
