/**
 * Describes Amazon Bedrock. The Converse and InvokeModel APIs are native. Embeddings, and Anthropic messages for Claude
 * models, are sent to InvokeModel. Other conversations are translated to Converse. The model is in the path.
 */
import { pathSegment, slashedName } from "../../http/request-path.ts";
import { type Format, isConversation } from "../request/dialect.ts";
import { ModelNameError, type Provider, STANDARD_CHAT, type UpstreamCall, withQuery } from "../request/provider.ts";

export function bedrock(region: string): Provider {
  return {
    name: "aws.bedrock",
    origin: `https://bedrock-runtime.${region}.amazonaws.com`,
    basePath: "",
    credential: "aws",
    headers: {},
    modelInBody: false,
    asksForStreamUsage: false,
    chat: STANDARD_CHAT,
    upstreamFormat: bedrockFormat,
    path(call, basePath) {
      const model = `${basePath}/model/${modelId(call.model)}`;
      const isNative = call.suffix.startsWith("/model/");
      const verb = isNative ? call.suffix.slice(call.suffix.lastIndexOf("/") + 1) : upstreamVerb(call);
      return withQuery(`${model}/${verb}`, call.query);
    },
  };
}

/** Bedrock expects the slashes of an ARN to be encoded. */
function modelId(model: string): string {
  const id = model.startsWith("arn:") ? slashedName(model, "%2F") : pathSegment(model);
  if (id === undefined) throw new ModelNameError();
  return id;
}

function upstreamVerb({ format, stream }: UpstreamCall): string {
  if (format === "invoke") return stream ? "invoke-with-response-stream" : "invoke";
  return stream ? "converse-stream" : "converse";
}

/** Also matches model names with a region prefix and the ARNs of inference profiles. */
const CLAUDE = /(?:^|[./])anthropic\.claude/;

function bedrockFormat(client: Format, model: string): Format | undefined {
  if (client === "messages" && CLAUDE.test(model)) return "invoke";
  if (client === "embeddings") return "invoke";
  if (isConversation(client) || client === "converse") return "converse";
  return client === "invoke" || client === "opaque" ? client : undefined;
}
