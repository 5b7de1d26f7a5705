/**
 * `apiKey`: authenticates requests by API key. A key has metadata that rules and limits can read (`apiKey.user_id`),
 * and optionally an expiry, a list of models, and a budget. Keys are configured in plain text or as SHA-256 hashes, or
 * they are created with gwctl and kept in the store (`stored`).
 */
import { z } from "zod";
import type { Clock } from "../../base/clock.ts";
import { Owner } from "../../base/owner.ts";
import { ConfigError } from "../../core/config-error.ts";
import type { RecordedIdentity, StoredKeyIdentity } from "../../core/dry-env.ts";
import { GatewayError } from "../../core/errors.ts";
import { type Exchange, StateKey } from "../../core/exchange.ts";
import { authenticating, type Charge, type CompileEnv, definePolicy, type Hooks } from "../../core/policy.ts";
import { keyPrincipal, shownPrincipal } from "../../core/principal.ts";
import type { ModelAccess } from "../../core/request-attributes.ts";
import { exactlyOneOf, missingChoice, secret } from "../../core/schema.ts";
import { includesHeader, METHOD_OVERRIDE_HEADERS } from "../../http/header-rules.ts";
import { authenticationMode, toleratedInShadow } from "../../identity/access/bearer-authentication.ts";
import {
  BEARER_LOCATION,
  type CredentialLocation,
  credentialLocation,
  credentialPlaces,
  readCredential,
  withhold,
} from "../../identity/access/credential-location.ts";
import { type ApiKeyEntry, createApiKeys, type KeyBudget, keyDigest } from "../../identity/passwords/api-keys.ts";
import { compileFailureLimit, failureLimitSchema } from "../../identity/passwords/failed-credentials.ts";
import {
  createKeyFinder,
  keyBudget,
  keyId,
  keyModels,
  ownerOfKey,
  type StoredKey,
  storedKeyIdentity,
} from "../../identity/passwords/stored-keys.ts";
import { accountFor, accountsOf, type Budget, fromStoredAmount, toStoredAmount } from "../../llm/budgets/budget.ts";
import { createChargeHooks, createClaims } from "../../llm/budgets/budget-charge.ts";
import { budgetBooks } from "../../llm/budgets/ledger.ts";
import { detectDialect } from "../../llm/request/dialect.ts";
import { LlmRequestAttributes } from "../../llm/request/llm-call.ts";
import { matchPattern } from "../../llm/request/read-request.ts";
import { ONLY_ENDED } from "../../store/holds.ts";
import { ownedStore } from "../../store/owned-store.ts";
import { type Store, StoreUnavailable } from "../../store/store.ts";

/** The general scheme is checked first, then the headers that the LLM providers' own clients use. */
const DEFAULT_LOCATIONS: readonly CredentialLocation[] = [
  BEARER_LOCATION,
  { header: { name: "x-api-key" } },
  { header: { name: "api-key" } },
  { header: { name: "x-goog-api-key" } },
];

const KEY_HASH = /^sha256:[0-9a-fA-F]{64}$/;
/** `Date.parse` accepts much more than ISO dates. */
const ISO_DATE = /^\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d))?$/;
const RETRY_AFTER_SECONDS = "2";
/** API keys have no user name. */
const NO_USER = "";
const JWT = /^eyJ[\w-]*\.[\w-]+\.[\w-]*$/;

const writtenKey = exactlyOneOf(
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
    expires: z
      .string()
      .regex(ISO_DATE, "expected a date such as 2027-01-31")
      .refine((text) => !Number.isNaN(Date.parse(text)), "there is no such date")
      .optional()
      .describe("The key is rejected from this date on (UTC). Default: never."),
    models: keyModels.optional().describe("The models that the key may use, each with at most one `*`. Default: all."),
    budget: keyBudget.optional().describe("The key's budget per day, week or month."),
  }),
  ["key", "keyHash"],
);

export const apiKey = definePolicy({
  kind: "apiKey",
  doc: "Requires one of the configured API keys. Expressions read its metadata as `apiKey.<field>`.",
  scopes: ["gateway", "route"],
  role: "security",
  exemptsLogins: true,
  protection: () => "paths",
  requiresCredential: ({ mode }) => mode === undefined || mode === "strict",
  sharedState: ({ stored }) => (stored === true ? { what: "stored API keys" } : undefined),
  schema: z
    .strictObject({
      mode: authenticationMode.optional(),
      keys: z.array(writtenKey).min(1).optional().describe("The API keys."),
      stored: z.boolean().optional().describe("Accepts keys created with `gwctl keys create`. Default: false."),
      location: credentialLocation
        .optional()
        .describe("Where the key is. Default: `authorization: Bearer`, `x-api-key`, `api-key` or `x-goog-api-key`."),
      failureLimit: failureLimitSchema,
    })
    .refine(({ keys, stored }) => keys !== undefined || stored === true, missingChoice(["keys", "stored"])),

  compile(config, env) {
    const mode = config.mode ?? "strict";
    const locations = config.location ? [config.location] : DEFAULT_LOCATIONS;
    const seen = new Set<string>();
    const entries = (config.keys ?? []).map(({ key, keyHash, metadata, ...rest }, index): ApiKeyEntry => {
      const digest = key === undefined ? Buffer.from((keyHash ?? "").slice("sha256:".length), "hex") : keyDigest(key);
      const hex = digest.toString("hex");
      if (seen.has(hex)) throw new ConfigError(undefined, "keys", `the key at index ${index} appears twice`);
      seen.add(hex);
      return {
        id: keyId(digest),
        digest,
        principal: keyPrincipal(digest),
        metadata: Object.freeze({ ...metadata }),
        expiresAtMs: rest.expires === undefined ? undefined : Date.parse(rest.expires),
        access: modelAccess(rest.models),
        budget: rest.budget,
      };
    });
    const keys = createApiKeys(entries);
    const stored = config.stored === true ? createKeyFinder(env.store, env.clock) : undefined;
    const failureLimit = compileFailureLimit(config.failureLimit, "apiKey", env);
    const authenticatedKey = new StateKey<ApiKeyEntry>();

    function reject(exchange: Exchange, detail: string): undefined {
      if (mode === "permissive") {
        toleratedInShadow(exchange, "apiKey", detail);
        return undefined;
      }
      const headers = { "www-authenticate": 'Bearer realm="gateway"' };
      throw new GatewayError("authentication_failed", { message: "API key authentication failed", detail, headers });
    }

    const byShownPrincipal = new Map(entries.map((entry) => [shownPrincipal(entry.principal), entry]));
    const admit = (exchange: Exchange, entry: ApiKeyEntry): undefined => {
      if (entry.expiresAtMs !== undefined && entry.expiresAtMs <= env.clock.now())
        return reject(exchange, "the API key has expired");
      exchange.attributes.apiKey = entry.metadata;
      exchange.identity.modelAccess = intersectAccess(exchange.identity.modelAccess, entry.access);
      exchange.authenticated(entry.principal);
      exchange.setState(authenticatedKey, entry);
    };

    function decide(exchange: Exchange, found: readonly FoundKey[]): undefined {
      const problems: string[] = [];
      let matched: ApiKeyEntry | undefined;
      for (const { location, entry, problem } of found) {
        if (matched === undefined) withhold(exchange, location, entry !== undefined);
        // A second gateway key is not forwarded either. Keys of two users in one request are rejected.
        else if (entry !== undefined) withhold(exchange, location, false);
        if (matched !== undefined && entry !== undefined && entry.principal !== matched.principal)
          return reject(exchange, "the request has two API keys of different users");
        matched ??= entry;
        if (matched === undefined) problems.push(problem ?? "the API key is not one of the configured keys");
      }
      if (matched !== undefined) return admit(exchange, matched);
      if (problems.length > 0) {
        if (mode !== "permissive" && found.some(({ isGuess }) => isGuess))
          failureLimit.failed(exchange.source, NO_USER);
        return reject(exchange, problems.join("; "));
      }
      if (mode !== "optional") reject(exchange, "no API key was sent");
      return exchange.skip("no API key was sent; none is required");
    }

    function head(exchange: Exchange): undefined | Promise<undefined> {
      const found: FoundKey[] = [];
      const lookups: Promise<unknown>[] = [];
      for (const location of locations) {
        const read = readCredential(exchange.request, location);
        if (read.kind === "none") continue;
        const credential: FoundKey = {
          location,
          entry: undefined,
          problem: read.kind === "bad" ? read.detail : undefined,
          isGuess: read.kind === "found" && !JWT.test(read.value),
        };
        found.push(credential);
        if (read.kind !== "found") continue;
        if (credential.isGuess && mode !== "permissive") failureLimit.check(exchange.source, NO_USER);
        credential.entry = keys.find(read.value);
        if (credential.entry !== undefined || stored === undefined) continue;
        lookups.push(
          stored.find(read.value).then((key) => {
            credential.entry = key && toEntry(storedKeyIdentity(key), key.budget, key.namespace === undefined);
          }),
        );
      }
      if (lookups.length === 0) return decide(exchange, found);
      return Promise.all(lookups).then(
        () => decide(exchange, found),
        (error: unknown) => {
          if (!(error instanceof StoreUnavailable)) throw error;
          // Without the store, even a permissive route cannot identify the user.
          throw new GatewayError("not_ready", {
            message: "API keys cannot be checked now",
            detail: error.message,
            headers: { "retry-after": RETRY_AFTER_SECONDS },
          });
        },
      );
    }

    const hasModels = stored !== undefined || entries.some(({ access }) => access !== undefined);
    const hasBudgets = stored !== undefined || entries.some(({ budget }) => budget !== undefined);
    const recorded = (exchange: Exchange, { principals, storedKey }: RecordedIdentity): undefined => {
      const key = principals.find((principal) => principal.startsWith("key:"));
      const matched = key === undefined ? undefined : byShownPrincipal.get(key);
      if (matched !== undefined) return admit(exchange, matched);
      if (storedKey !== undefined && stored !== undefined)
        return stored.accepts(storedKey.namespace)
          ? admit(exchange, toEntry(storedKey))
          : reject(exchange, "the API key belongs to another namespace");
      if (key !== undefined && stored !== undefined) return exchange.skip("the key may be one of the store");
      if (key !== undefined) return reject(exchange, "the API key is not one of the configured keys");
      return mode === "strict" ? reject(exchange, "no API key was sent") : undefined;
    };

    return {
      access: authenticating(env, { head, ...(hasModels ? { body: checkModel } : {}) }, { recorded }),
      clients: {
        ...(config.location ? { credentials: credentialPlaces(config.location) } : {}),
        configured: () =>
          entries.map(({ principal, metadata, id }) => ({
            kind: "key",
            principal: shownPrincipal(principal),
            attributes: { id, ...metadata },
          })),
      },
      // `sight.model` is not needed, because a key with a model list sets `exchange.identity.modelAccess`.
      ...(hasBudgets
        ? { ...keyBudgetHooks(env, (exchange) => exchange.state(authenticatedKey)), sight: { tokens: true } }
        : {}),
    };
  },
});

interface FoundKey {
  readonly location: CredentialLocation;
  entry: ApiKeyEntry | undefined;
  /** A token of another issuer is not an attempt to guess a key. */
  readonly isGuess: boolean;
  /** Explains why the credential cannot be a key, for the operator. */
  readonly problem: string | undefined;
}

function toEntry(
  { digest, metadata, expiresAtMs, models }: StoredKeyIdentity,
  budget?: KeyBudget | undefined,
  hasNoNamespace = false,
): ApiKeyEntry & SpendingKey {
  const bytes = Buffer.from(digest);
  return {
    id: keyId(bytes),
    digest: bytes,
    principal: keyPrincipal(bytes),
    metadata: Object.freeze({ ...metadata }),
    expiresAtMs,
    access: modelAccess(models),
    budget,
    hasNoNamespace,
  };
}

/** All key budgets share this name. The key's id identifies its account. */
const NAME = "key";
const ALERT_AT = [80, 100];

export interface SpendingKey {
  readonly id: string;
  readonly budget?: KeyBudget | undefined;
  /** True for a stored key without a namespace, which has one budget wherever it is accepted. */
  readonly hasNoNamespace?: boolean;
}

/** Returns hooks that charge the budget of the key that authenticated the request. `keyOf` returns that key. */
export function keyBudgetHooks(
  env: CompileEnv,
  keyOf: (exchange: Exchange) => SpendingKey | undefined,
): Pick<Hooks, "admit" | "settle" | "response"> {
  const books = budgetBooks(env);
  const own = accountsOf(env.store);
  const withoutNamespace =
    own.former === undefined ? own : { store: own.former, former: undefined, tenant: Owner.standalone };
  const { charge, settle, response } = createChargeHooks({
    books,
    failureMode: "closed",
    webhook: undefined,
    nowMs: () => env.clock.now(),
  });
  return {
    admit: {
      call(exchange): Charge | undefined {
        const key = keyOf(exchange);
        if (key?.budget === undefined) return undefined;
        const accounts = key.hasNoNamespace === true ? withoutNamespace : own;
        const wanted = [{ accounts, budget: toBudget(key.budget), key: key.id }];
        return charge(exchange, createClaims(wanted, exchange, "refuse", env.clock.now()));
      },
    },
    settle,
    response,
  };
}

/** Resolves with the amount spent in the current period, or with undefined if the key has no budget. */
export async function keySpending(
  whole: Store,
  clock: Clock,
  key: Pick<StoredKey, "id" | "namespace" | "budget">,
): Promise<number | undefined> {
  if (key.budget === undefined) return undefined;
  const budget = toBudget(key.budget);
  const accounts = accountsOf(ownedStore(whole, ownerOfKey(key.namespace)));
  const account = accountFor(accounts, budget, key.id, key.id, clock.now());
  return fromStoredAmount(budget.unit, (await account.store.add(account.key, 0, { hold: ONLY_ENDED })).total);
}

function toBudget({ cost, tokens, per }: KeyBudget): Budget {
  const unit = tokens === undefined ? "cost" : "tokens";
  return {
    name: NAME,
    unit,
    limit: toStoredAmount(unit, tokens ?? cost ?? 0),
    per,
    isHard: true,
    reservesOutput: false,
    alertAt: ALERT_AT,
  };
}

export function modelAccess(models: readonly string[] | undefined): ModelAccess | undefined {
  if (models === undefined) return undefined;
  return {
    allows: (model) => models.some((pattern) => matchPattern(pattern, model) !== undefined),
    names: models.filter((name) => !name.includes("*")),
  };
}

/** If several keys were checked, all of them must allow the model. */
export function intersectAccess(a: ModelAccess | undefined, b: ModelAccess | undefined): ModelAccess | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return {
    allows: (model) => a.allows(model) && b.allows(model),
    names: [...new Set([...a.names, ...b.names])].filter((name) => a.allows(name) && b.allows(name)),
  };
}

/** A request with one of these methods, without a body and a method override, counts as reading. */
const READ_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);

/** Throws `model_not_allowed` if the key's model list does not allow the request. */
export function checkModel({ identity: { modelAccess: access }, request, attributes }: Exchange): undefined {
  if (access === undefined) return;
  // A plain HTTP backend may be an LLM provider. MCP servers, A2A agents, and the gateway's own pages are not.
  const { backend, llm, a2a } = attributes;
  if (backend?.type !== "ai" && (backend?.type !== "static" || a2a !== undefined)) return;
  for (const model of LlmRequestAttributes.modelsOf(llm)) {
    if (!access.allows(model))
      throw modelNotAllowed(`the API key may not use the model ${JSON.stringify(model)}, which the request names`);
  }
  const { method, headers, body, path } = request;
  if (headers.has("upgrade"))
    throw modelNotAllowed("the API key may use certain models only, and what passes a WebSocket cannot be checked");
  const isReading =
    body.kind === "none" &&
    READ_METHODS.has(method) &&
    ![...headers.names()].some((name) => includesHeader(METHOD_OVERRIDE_HEADERS, name));
  if (isReading) return;
  if (llm?.requestModel === undefined)
    throw modelNotAllowed("the API key may use certain models only, and the request names none");
  if (!detectDialect(path).runsRequestedModel)
    throw modelNotAllowed("the API key may use certain models only, and what is stored under this path can use any");
}

function modelNotAllowed(message: string): GatewayError {
  return new GatewayError("model_not_allowed", { message });
}
