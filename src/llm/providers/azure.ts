/**
 * Describes Azure OpenAI. Without an API version, or with `v1` or `preview`, the model is in the body. A dated API
 * version selects the older API, which has the deployment in the path.
 */
import { modelSegment, type Provider, withQuery } from "../request/provider.ts";
import { OPENAI_CHAT, openAiCompatible } from "./openai.ts";

export interface AzureOptions {
  readonly resourceName: string;
  readonly resourceType: "openAI" | "foundry";
  readonly apiVersion: string | undefined;
}

export function azure(options: AzureOptions): Provider {
  const domain = options.resourceType === "foundry" ? "services.ai.azure.com" : "openai.azure.com";
  const base = openAiCompatible("azure", `https://${options.resourceName}.${domain}/openai/v1`, {
    streamUsage: true,
    responses: true,
    chat: OPENAI_CHAT,
  });
  const { apiVersion } = options;
  // Azure lists the models of the region, even those that are not deployed.
  const shared: Provider = { ...base, credential: "api-key", modelList: undefined };
  if (apiVersion === undefined || apiVersion === "v1") return shared;
  const version = `api-version=${encodeURIComponent(apiVersion)}`;
  if (apiVersion === "preview")
    return { ...shared, path: (call, basePath) => withQuery(basePath + call.suffix, version) };
  return {
    ...shared,
    basePath: "/openai",
    readsForms: true,
    // The Responses API has no deployment in its path.
    path: (call, basePath) =>
      withQuery(
        call.format === "responses"
          ? `${basePath}/responses`
          : `${basePath}/deployments/${modelSegment(call.model)}${call.suffix}`,
        version,
      ),
  };
}
