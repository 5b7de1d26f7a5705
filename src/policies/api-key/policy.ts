/**
 * `apiKey`: keys that the operator hands out, with metadata that rules and limits can read (`apiKey.user_id`).
 * Keys are given in plain text (from the environment) or as SHA-256; by default they are looked for where LLM and
 * other clients put them.
 */
import { z } from "zod";
import { ConfigError, GatewayError } from "../../core/errors.ts";
import type { Exchange } from "../../core/exchange.ts";
import { definePolicy } from "../../core/policy.ts";
import { keyPrincipal, shownPrincipal } from "../../core/principal.ts";
import { exactlyOneOf, secret } from "../../core/schema.ts";
import { authenticationMode, toleratedInShadow } from "../../identity/access/bearer-authentication.ts";
import {
  BEARER_LOCATION,
  type CredentialLocation,
  credentialLocation,
  credentialPlaces,
  readCredential,
  withhold,
} from "../../identity/access/credential-location.ts";
import { type ApiKeyEntry, createApiKeys, digestOf } from "../../identity/passwords/api-keys.ts";

/** In this order: the general scheme, then the headers of the LLM providers' own clients. */
const USUAL_PLACES: readonly CredentialLocation[] = [
  BEARER_LOCATION,
  { header: { name: "x-api-key" } },
  { header: { name: "api-key" } },
  { header: { name: "x-goog-api-key" } },
];

const KEY_HASH = /^sha256:[0-9a-fA-F]{64}$/;

export const apiKey = definePolicy({
  kind: "apiKey",
  doc: "Requires one of the configured API keys; its metadata is readable as `apiKey.<field>`.",
  scopes: ["gateway", "route"],
  role: "security",
  requiresCredential: ({ mode }) => mode === undefined || mode === "strict",
  schema: z.strictObject({
    mode: authenticationMode.optional(),
    keys: z
      .array(
        exactlyOneOf(
          z.strictObject({
            key: secret().optional().describe("The key in plain text; use an environment variable."),
            keyHash: z
              .string()
              .regex(KEY_HASH, "expected `sha256:` and 64 hexadecimal digits")
              .optional()
              .describe("The key's SHA-256."),
            metadata: z
              .record(z.string().min(1), z.unknown())
              .optional()
              .describe("Readable as `apiKey.<field>`, for example `user_id`."),
          }),
          ["key", "keyHash"],
        ),
      )
      .min(1),
    location: credentialLocation
      .optional()
      .describe("Where the key is. Default: `authorization: Bearer`, `x-api-key`, `api-key` or `x-goog-api-key`."),
  }),

  compile(config) {
    const mode = config.mode ?? "strict";
    const places = config.location ? [config.location] : USUAL_PLACES;
    const seen = new Set<string>();
    const entries = config.keys.map(({ key, keyHash, metadata }, index): ApiKeyEntry => {
      const digest = key === undefined ? Buffer.from((keyHash ?? "").slice("sha256:".length), "hex") : digestOf(key);
      const hex = digest.toString("hex");
      if (seen.has(hex)) throw new ConfigError(undefined, "keys", `the key at index ${index} appears twice`);
      seen.add(hex);
      return { digest, principal: keyPrincipal(digest), metadata: Object.freeze({ ...metadata }) };
    });
    const keys = createApiKeys(entries);

    function refuse(exchange: Exchange, detail: string): undefined {
      if (mode === "permissive") {
        toleratedInShadow(exchange, "apiKey", detail);
        return undefined;
      }
      const headers = { "www-authenticate": 'Bearer realm="gateway"' };
      throw new GatewayError("authentication_failed", { message: "API key authentication failed", detail, headers });
    }

    const byShownPrincipal = new Map(entries.map((entry) => [shownPrincipal(entry.principal), entry]));
    const admit = (exchange: Exchange, { metadata, principal }: ApiKeyEntry): undefined => {
      exchange.facts.apiKey = metadata;
      exchange.authenticated(principal);
    };

    return {
      ...(config.location ? { credentials: credentialPlaces(config.location) } : {}),
      request(exchange) {
        const bad: string[] = [];
        let known: ApiKeyEntry | undefined;
        for (const place of places) {
          const found = readCredential(exchange.request, place);
          if (found.kind === "none") continue;
          const entry = found.kind === "found" ? keys.find(found.value) : undefined;
          if (known === undefined) withhold(exchange, place, entry !== undefined);
          // A key of ours in a second place is not for the backend either; two users in one request are none.
          else if (entry !== undefined) withhold(exchange, place, false);
          if (known !== undefined && entry !== undefined && entry !== known)
            return refuse(exchange, "the request has two API keys of different users");
          known ??= entry;
          if (known === undefined)
            bad.push(found.kind === "bad" ? found.detail : "the API key is not one of the configured keys");
        }
        if (known !== undefined) return admit(exchange, known);
        if (bad.length > 0) return refuse(exchange, bad.join("; "));
        if (mode !== "optional") refuse(exchange, "no API key was sent");
        return exchange.skip("no API key was sent; none is required");
      },
      recall(exchange, { principals }) {
        const key = principals.find((principal) => principal.startsWith("key:"));
        const known = key === undefined ? undefined : byShownPrincipal.get(key);
        if (known !== undefined) return admit(exchange, known);
        if (key !== undefined) return refuse(exchange, "the API key is not one of the configured keys");
        return mode === "strict" ? refuse(exchange, "no API key was sent") : undefined;
      },
    };
  },
});
