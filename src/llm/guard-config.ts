/**
 * Defines the configuration of guards: patterns, webhooks, and moderation services with their credentials. LLM prompts
 * and responses and the results of MCP tools use the same guards.
 */
import { z } from "zod";
import { urlLabel } from "../base/url-label.ts";
import type { CompileEnv } from "../core/policy.ts";
import { duration, exactlyOneOf, headerName, headerValue, serverUrl } from "../core/schema.ts";
import { createAwsSigner } from "../identity/cloud/aws.ts";
import type { Counter, Family } from "../record/log/metrics.ts";
import {
  azureContentSafety,
  bedrockGuardrails,
  createGuardWebhook,
  createServiceGuard,
  type GuardService,
  type GuardServiceSettings,
  type GuardWebhook,
  googleModelArmor,
  openAiModeration,
} from "./guards/guard-services.ts";
import { addKey, authSchema, BEDROCK, compileCredential } from "./models/credential.ts";

const DEFAULT_TIMEOUT_MS = 5_000;
const DEFAULT_WEBHOOK_TIMEOUT_MS = 2_000;
const AZURE_API_VERSION = "2024-09-01";

const call = {
  timeout: duration().default(DEFAULT_TIMEOUT_MS).describe("How long a call may take. Default: 5s."),
  failureMode: z
    .enum(["closed", "open"])
    .default("closed")
    .describe("What happens if the service fails: `closed` rejects the text, `open` lets it pass. Default: closed."),
};

const resourceName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}$/, "expected a name or identifier");
const credential = (standard: string) =>
  authSchema.optional().describe(`The credential for the service. Default: ${standard}.`);

const guardRule = exactlyOneOf(
  z.strictObject({
    builtin: z.enum(["ssn", "creditCard", "phoneNumber", "email", "caSin"]).optional().describe("A built-in pattern."),
    pattern: z.string().min(1).max(4096).optional().describe("A regular expression in RE2 syntax."),
  }),
  ["builtin", "pattern"],
);

/** `what` names the text that a match rejects. */
function regexGuard(what: string) {
  return z
    .strictObject({
      action: z
        .enum(["mask", "reject"])
        .default("mask")
        .describe(`Mask matches, or reject the whole ${what}. Default: mask.`),
      rules: z.array(guardRule).min(1).describe("The patterns."),
    })
    .optional()
    .describe("Regular expressions, matched in linear time.");
}

const guardServices = {
  openAIModeration: z
    .strictObject({
      auth: authSchema.describe("The credential for the OpenAI API, for example `{ key }`."),
      model: z
        .string()
        .min(1)
        .default("omni-moderation-latest")
        .describe("The moderation model. Default: omni-moderation-latest."),
      baseUrl: serverUrl()
        .default("https://api.openai.com/v1")
        .describe("The base URL of the API. Default: https://api.openai.com/v1."),
      ...call,
    })
    .optional()
    .describe("OpenAI moderation: rejects texts that it flags."),
  bedrockGuardrails: z
    .strictObject({
      guardrailIdentifier: resourceName.describe("The ID or ARN of the guardrail."),
      guardrailVersion: z
        .string()
        .regex(/^(?:DRAFT|[0-9]{1,8})$/, "expected DRAFT or a number")
        .describe("The version, or `DRAFT`."),
      region: z
        .string()
        .regex(/^[a-z0-9-]+$/, "expected a region such as us-east-1")
        .describe("The AWS region."),
      auth: credential("`{ aws: {} }`, the default AWS credential chain"),
      baseUrl: serverUrl().optional().describe("The base URL of the API. Default: the endpoint of the region."),
      ...call,
    })
    .optional()
    .describe("Amazon Bedrock Guardrails: rejects or masks texts."),
  googleModelArmor: z
    .strictObject({
      templateId: resourceName.describe("The template."),
      projectId: resourceName.describe("The Google Cloud project."),
      location: z
        .string()
        .regex(/^[a-z0-9-]+$/, "expected a location such as us-central1")
        .default("us-central1")
        .describe("The location of the template. Default: us-central1."),
      auth: credential("`{ google: {} }`, the default Google credentials"),
      baseUrl: serverUrl().optional().describe("The base URL of the API. Default: the endpoint of the location."),
      ...call,
    })
    .optional()
    .describe("Google Model Armor: rejects texts that match a filter of the template."),
  azureContentSafety: z
    .strictObject({
      endpoint: serverUrl().describe("The endpoint, for example https://name.cognitiveservices.azure.com."),
      analyzeText: z
        .strictObject({
          severityThreshold: z
            .int()
            .min(1)
            .max(7)
            .default(2)
            .describe("The lowest severity that is rejected, in any category. Default: 2."),
          blocklistNames: z
            .array(z.string().min(1))
            .default([])
            .describe("Blocklists of the resource. A match rejects the text."),
        })
        .optional()
        .describe("Rejects harmful texts."),
      detectJailbreak: z
        .strictObject({})
        .optional()
        .describe("Rejects requests and results of MCP tools that attack the model (Prompt Shields)."),
      auth: credential("`{ azure: {} }`, the default Azure credentials"),
      ...call,
    })
    .refine(
      ({ analyzeText, detectJailbreak }) => (analyzeText ?? detectJailbreak) !== undefined,
      "set `analyzeText`, `detectJailbreak`, or both",
    )
    .optional()
    .describe("Azure AI Content Safety: rejects harmful texts and attacks."),
};

const externalGuards = {
  webhook: z
    .strictObject({
      url: serverUrl().describe("Receives the text as a POST request and responds with pass, mask, or reject."),
      headers: z
        .record(headerName(), headerValue().meta({ secret: true }))
        .default({})
        .describe("Headers of these requests, for example a token."),
      timeout: duration().default(DEFAULT_WEBHOOK_TIMEOUT_MS).describe("How long it may take. Default: 2s."),
      failureMode: z
        .enum(["closed", "open"])
        .default("closed")
        .describe(
          "What happens if the guard fails or times out: `closed` rejects the text, `open` lets it pass. Default: closed.",
        ),
    })
    .optional()
    .describe("Your own guard, called over HTTP."),
  ...guardServices,
};

/** `what` names the text that the guard checks. `rejection` is the schema of the response to a rejected text. */
export function guardSchema<Rejection extends z.ZodType>(what: string, rejection: Rejection) {
  return exactlyOneOf(
    z.strictObject({
      mode: z
        .enum(["enforce", "shadow"])
        .optional()
        .describe(
          "`shadow`: records what the guard would mask or reject (`gwctl shadow report`), but changes nothing. Default: enforce.",
        ),
      regex: regexGuard(what),
      ...externalGuards,
      rejection,
    }),
    ["regex", ...Object.keys(externalGuards)],
  ).refine(({ mode, regex }) => mode !== "shadow" || regex !== undefined, {
    path: ["mode"],
    message: "`shadow` can only be used with `regex`",
  });
}

const serviceShape = z.strictObject(guardServices);
type GuardServicesConfig = z.output<typeof serviceShape>;
const externalShape = z.strictObject(externalGuards);
type ExternalGuardConfig = z.output<typeof externalShape>;

type GuardFailed = (service: string, failureMode: string, reason: string) => void;

/** `failures` has one label, the URL of the guard. */
export function reportGuardFailures(area: "llm" | "mcp", failures: Family<Counter>, env: CompileEnv): GuardFailed {
  return (url, failureMode, reason) => {
    failures.labels(url).add();
    env.logger.for(area).warn("guard failed", { url, reason, failureMode });
  };
}

/** Returns undefined if the guard calls neither a webhook nor a service. */
export function compileExternalGuard(
  { webhook, ...services }: ExternalGuardConfig,
  rejection: { readonly status: number; readonly message: string },
  env: CompileEnv,
  failed: GuardFailed,
): GuardWebhook | undefined {
  if (webhook === undefined) return compileServiceGuard(services, rejection, env, failed);
  const { url, headers, timeout: timeoutMs, failureMode } = webhook;
  const settings = { url, headers, timeoutMs, failureMode, rejection };
  return createGuardWebhook(settings, env.fetch, (reason) => failed(urlLabel(url), failureMode, reason));
}

interface Chosen {
  readonly service: GuardService;
  readonly label: string;
  readonly authorize: GuardServiceSettings["authorize"];
  readonly timeout: number;
  readonly failureMode: "closed" | "open";
}

function compileServiceGuard(
  config: GuardServicesConfig,
  rejection: { readonly status: number; readonly message: string },
  env: CompileEnv,
  failed: GuardFailed,
): GuardWebhook | undefined {
  const chosen = chooseService(config, env);
  if (chosen === undefined) return undefined;
  const { service, label, authorize, timeout: timeoutMs, failureMode } = chosen;
  return createServiceGuard(
    service,
    { timeoutMs, failureMode, rejection, authorize },
    { fetch: env.fetch, failed: (reason) => failed(label, failureMode, reason) },
  );
}

function chooseService(config: GuardServicesConfig, env: CompileEnv): Chosen | undefined {
  const {
    openAIModeration: openAi,
    bedrockGuardrails: bedrock,
    googleModelArmor: armor,
    azureContentSafety: azure,
  } = config;
  if (openAi !== undefined)
    return {
      ...openAi,
      service: openAiModeration(openAi),
      label: urlLabel(openAi.baseUrl),
      authorize: authorizer(openAi.auth, "", "bearer", env),
    };
  if (bedrock !== undefined) {
    const baseUrl = bedrock.baseUrl ?? `https://bedrock-runtime.${bedrock.region}.amazonaws.com`;
    const authorize = authorizer(bedrock.auth ?? own({ aws: {} }, env), bedrock.region, "bearer", env);
    return { ...bedrock, service: bedrockGuardrails({ ...bedrock, baseUrl }), label: urlLabel(baseUrl), authorize };
  }
  if (armor !== undefined) {
    const baseUrl = armor.baseUrl ?? `https://modelarmor.${armor.location}.rep.googleapis.com`;
    const template = `projects/${armor.projectId}/locations/${armor.location}/templates/${armor.templateId}`;
    const authorize = authorizer(armor.auth ?? own({ google: {} }, env), "", "bearer", env);
    return { ...armor, service: googleModelArmor({ baseUrl, template }), label: urlLabel(baseUrl), authorize };
  }
  if (azure === undefined) return undefined;
  const service = azureContentSafety({
    endpoint: azure.endpoint.replace(/\/+$/, ""),
    apiVersion: AZURE_API_VERSION,
    severityThreshold: azure.analyzeText?.severityThreshold,
    blocklistNames: azure.analyzeText?.blocklistNames ?? [],
    detectsJailbreak: azure.detectJailbreak !== undefined,
  });
  const authorize = authorizer(azure.auth ?? own({ azure: {} }, env), "", "ocp-apim-subscription-key", env);
  return { ...azure, service, label: urlLabel(azure.endpoint), authorize };
}

/** A policy from a cluster must not use the credentials of the gateway's machine, also not by default. */
function own(auth: z.output<typeof authSchema>, { machine }: CompileEnv): z.output<typeof authSchema> {
  if (machine === undefined)
    throw new Error("set `auth`: a policy of a cluster cannot use credentials of this machine");
  return auth;
}

type KeyForm = "bearer" | "ocp-apim-subscription-key";

function authorizer(
  auth: z.output<typeof authSchema>,
  region: string,
  form: KeyForm,
  env: CompileEnv,
): GuardServiceSettings["authorize"] {
  if (auth.passthrough !== undefined) throw new Error("a guard cannot use the client's credential: set another `auth`");
  const compiled = compileCredential(auth, `guard of ${env.scopeName}`, region, env);
  if (compiled.kind === "aws") {
    const sign = createAwsSigner(compiled.keys, { region, service: BEDROCK }, env.clock);
    return ({ url, body, headers }) => {
      const { protocol, hostname, port, pathname, search, host } = new URL(url);
      const scheme = protocol === "https:" ? "https" : "http";
      headers.set("host", host);
      const number = port === "" ? (scheme === "https" ? 443 : 80) : Number(port);
      return sign({
        method: "POST",
        protocol: scheme,
        hostname,
        port: number,
        path: pathname + search,
        headers,
        body: [body],
      });
    };
  }
  if (compiled.kind === "token")
    return async ({ headers }) => {
      headers.set("authorization", `Bearer ${await compiled.token.get()}`);
    };
  return ({ headers }) => {
    const key = compiled.kind === "key" ? compiled.read() : "";
    if (form === "bearer") addKey(headers, "bearer", key);
    else headers.set(form, key);
  };
}
