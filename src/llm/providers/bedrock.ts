/**
 * Amazon Bedrock: converse and invoke are native, chat requests become converse. The model is in the path.
 */
import type { Format } from "../dialect.ts";
import { type Provider, withQuery } from "../provider.ts";

export function bedrock(region: string): Provider {
  return {
    name: "aws.bedrock",
    origin: `https://bedrock-runtime.${region}.amazonaws.com`,
    basePath: "",
    credential: "aws",
    headers: {},
    modelInBody: false,
    asksForStreamUsage: false,
    maxTokensMember: "max_tokens",
    upstreamFormat: bedrockFormat,
    path(call, basePath) {
      const model = `${basePath}/model/${encodeURIComponent(call.model)}`;
      const verb = call.suffix.startsWith("/model/")
        ? call.suffix.slice(call.suffix.lastIndexOf("/") + 1)
        : call.stream
          ? "converse-stream"
          : "converse";
      return withQuery(`${model}/${verb}`, call.query);
    },
  };
}

function bedrockFormat(client: Format): Format | undefined {
  if (client === "chat" || client === "messages" || client === "converse") return "converse";
  return client === "invoke" || client === "opaque" ? client : undefined;
}
