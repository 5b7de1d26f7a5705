/**
 * The configuration of a remote server that wants a login of its own: the gateway is its OAuth client, and each user
 * connects an account once.
 */
import { z } from "zod";
import { httpUrl, secret } from "../../core/schema.ts";

export const oauthSchema = z
  .strictObject({
    connectUrl: httpUrl().describe(
      "The public URL of the route with the `mcpLogins` backend, for example `https://gateway.example.com/connect`. Users connect their accounts there.",
    ),
    issuer: httpUrl().optional().describe("The authorization server. Default: the one that the server names."),
    clientId: z.string().min(1).optional().describe("The gateway's client id there. Default: it registers itself."),
    clientSecret: secret().optional().describe("The client's secret, if it has one."),
    scopes: z
      .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/))
      .optional()
      .describe("Default: what the server names."),
  })
  .refine(({ clientId, clientSecret }) => clientSecret === undefined || clientId !== undefined, {
    path: ["clientSecret"],
    message: "a secret needs a `clientId`",
  });

export type OauthConfig = z.output<typeof oauthSchema>;
