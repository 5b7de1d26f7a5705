/**
 * Selects the source of a policy's keys, configured (`jwks`) or derived from the provider, and creates its token
 * verifier. Policies with the same source share a verifier.
 */
import { z } from "zod";
import { urlLabel } from "../../base/url-label.ts";
import { ConfigError } from "../../core/config-error.ts";
import { type CompileEnv, machineOf } from "../../core/policy.ts";
import { markAddress, markLocal, serverUrl, watchedFilePath } from "../../core/schema.ts";
import { parseHttpUrl } from "../../http/fetch.ts";
import { createDiscovery, type Discovery } from "../providers/discovery.ts";
import { errorDetail, type IdentityProvider, invalidProviderResponse } from "../providers/provider.ts";
import { createInlineKeySet, type KeySet, openFileKeySet } from "./key-set.ts";
import { openRemoteKeySet } from "./remote-key-set.ts";
import { createTokenVerifier, type TokenVerifier } from "./token-verifier.ts";

const keySetObject = z.looseObject({ keys: z.array(z.unknown()) });

export const jwksSetting = z
  .union([
    markAddress(
      markLocal(z.string().min(1), { what: "a file", isLocal: (text) => typeof text === "string" && isFileText(text) }),
    ),
    z.strictObject({ url: serverUrl() }),
    z.strictObject({ file: watchedFilePath() }),
    z.strictObject({ inline: z.union([z.string().min(1), keySetObject]) }),
    keySetObject,
  ])
  .describe(
    "The key set: an http(s) URL, a file, inline JSON, or `{url}`, `{file}`, `{inline}`. Default: the one in the provider's metadata.",
  );

export type KeySource =
  | { readonly kind: "url"; readonly url: string }
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "inline"; readonly value: unknown }
  | { readonly kind: "discovered"; readonly issuer: string };

export type JwksConfig = z.output<typeof jwksSetting>;

export function selectKeySource(jwks: JwksConfig | undefined, provider: IdentityProvider): KeySource {
  if (jwks !== undefined) return configuredKeys(jwks);
  if (provider.keySetUrl !== undefined) return { kind: "url", url: provider.keySetUrl };
  return { kind: "discovered", issuer: provider.discoveredIssuer };
}

function configuredKeys(jwks: JwksConfig): KeySource {
  if (typeof jwks === "string") return fromText(jwks);
  if ("url" in jwks) return { kind: "url", url: jwks.url as string };
  if ("file" in jwks) return { kind: "file", path: jwks.file as string };
  if ("inline" in jwks) return { kind: "inline", value: jwks.inline };
  return { kind: "inline", value: jwks };
}

function isFileText(text: string): boolean {
  return !text.trimStart().startsWith("{") && !/^https?:/i.test(text);
}

function fromText(text: string): KeySource {
  if (isFileText(text)) return { kind: "file", path: text.replace(/^file:\/\//, "") };
  if (text.trimStart().startsWith("{")) return { kind: "inline", value: text };
  if (!parseHttpUrl(text))
    throw new ConfigError(undefined, "jwks", "not a valid http or https URL without credentials");
  return { kind: "url", url: text };
}

export function acquireVerifier(source: KeySource, discovery: Discovery | undefined, env: CompileEnv): TokenVerifier {
  const definition =
    source.kind === "file" ? { kind: "file", path: machineOf(env, "name files").resolvePath(source.path) } : source;
  try {
    return env.acquire(
      `identity key set ${JSON.stringify(definition)}`,
      definition,
      () => openVerifier(source, discovery, env),
      close,
    );
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new ConfigError(undefined, "jwks", errorDetail(error));
  }
}

export function acquireConfiguredVerifier(jwks: JwksConfig, env: CompileEnv): TokenVerifier {
  return acquireVerifier(configuredKeys(jwks), undefined, env);
}

export function acquireDiscovery(provider: IdentityProvider, env: CompileEnv): Discovery {
  const definition = { urls: provider.discoveryUrls, issuer: provider.discoveredIssuer };
  const logger = env.logger.for("identity");
  return env.acquire(`identity metadata ${JSON.stringify(definition)}`, definition, () =>
    createDiscovery({ ...definition, fetch: env.fetch, clock: env.clock, logger }),
  );
}

interface ClosableVerifier extends TokenVerifier {
  end(): void;
}

function openVerifier(source: KeySource, discovery: Discovery | undefined, env: CompileEnv): ClosableVerifier {
  const keySet = openKeySet(source, discovery, env);
  const task = env.tasks.start("key set", keySet.description, () => keySet.report());
  return { ...createTokenVerifier(keySet, env.clock), end: () => task.end() };
}

function close(verifier: ClosableVerifier): void {
  verifier.keySet.close();
  verifier.end();
}

function openKeySet(source: KeySource, discovery: Discovery | undefined, env: CompileEnv): KeySet {
  const { fetch, clock } = env;
  const logger = env.logger.for("identity");
  switch (source.kind) {
    case "inline":
      return createInlineKeySet(source.value);
    case "file":
      return openFileKeySet(machineOf(env, "name files").resolvePath(source.path), { clock, logger });
    case "url":
      return openRemoteKeySet({
        description: urlLabel(source.url),
        locate: async () => source.url,
        fetch,
        clock,
        logger,
      });
    case "discovered": {
      const locate = async (): Promise<string> => {
        const { jwks_uri } = (await discovery?.get()) ?? {};
        if (typeof jwks_uri !== "string")
          throw invalidProviderResponse(`the metadata of ${source.issuer} has no jwks_uri: set \`jwks\``);
        return jwks_uri;
      };
      return openRemoteKeySet({ description: `the keys of ${source.issuer}`, locate, fetch, clock, logger });
    }
  }
}
