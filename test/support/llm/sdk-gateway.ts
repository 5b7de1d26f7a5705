/**
 * A gateway with every provider, each on its own listener for an SDK.
 */
import { startGateway, type TestGateway } from "../gateway.ts";
import { startUpstream, type TestUpstream } from "./upstream.ts";

export interface SdkGateway {
  readonly upstream: TestUpstream;
  /** `listener`: `openai`, `anthropic`, `gemini` or `bedrock`. */
  url(listener: string): string;
  close(): Promise<void>;
}

export async function startSdkGateway(): Promise<SdkGateway> {
  const upstream = await startUpstream();
  const listeners = ["openai", "anthropic", "gemini", "bedrock"];
  const provider = (name: string): string =>
    ({
      openai: "{ openAI: {} }",
      anthropic: "{ anthropic: {} }",
      gemini: "{ gemini: {} }",
      bedrock: "{ bedrock: { region: us-east-1 } }",
    })[name] ?? "";
  const auth = (name: string): string =>
    name === "bedrock" ? "{ aws: { accessKeyId: AKID, secretAccessKey: aws-secret } }" : `{ key: key-of-${name} }`;
  const gateway: TestGateway = await startGateway(`
gateways: { ${listeners.map((name) => `${name}: { port: 0 }`).join(", ")} }
routes:
${listeners.map((name) => `  - { name: ${name}, gateways: ${name}, backends: [{ ai: { provider: ${provider(name)}, auth: ${auth(name)}, hostOverride: "${upstream.host}" } }] }`).join("\n")}
`);
  return {
    upstream,
    url: (listener) => gateway.url(listener),
    close: async () => {
      await gateway.close();
      await upstream.close();
    },
  };
}
