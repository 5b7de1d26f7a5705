/**
 * Converts agentgateway's credentials at AWS, Google Cloud, and Azure, and its backends for agents at AWS. Fields without
 * a counterpart stay as they are, so that the loader rejects them and their route is closed.
 */
import { defined } from "../../json/json.ts";
import { asObject, isObject, type Values } from "./conversion.ts";

const AGENT_CORE = "bedrock-agentcore";
const ARN = /^arn:(aws[a-z-]*):bedrock-agentcore:([a-z0-9-]+):/;

export function withCloudNames(backendAuth: Values): Values {
  const { gcp, azure, ...others } = backendAuth;
  return defined({
    ...others,
    google: isObject(gcp) && gcp.type === "accessToken" ? {} : gcp,
    azure: isObject(azure) ? azureOf(azure) : azure,
  });
}

/** agentgateway nests the source of the credential. An empty source is the default credential chain in both programs. */
function azureOf({ explicitConfig, ...azure }: Values): Values {
  const { clientSecret, ...sources } = asObject(explicitConfig);
  const { tenant_id, client_id, client_secret, ...more } = asObject(clientSecret);
  const others = Object.entries(azure).filter(([, value]) => !isObject(value) || Object.keys(value).length > 0);
  return defined({
    ...Object.fromEntries(others),
    ...sources,
    ...more,
    tenantId: tenant_id,
    clientId: client_id,
    clientSecret: client_secret,
  });
}

/** Converts an agent at Amazon Bedrock AgentCore to its HTTP endpoint with signed requests. */
export function withAgentCore(backend: Values): Values {
  const { aws, policies, ...others } = backend;
  const { agentCore, ...more } = asObject(aws);
  const { agentRuntimeArn, ...settings } = asObject(agentCore);
  const [, partition, region] = ARN.exec(String(agentRuntimeArn)) ?? [];
  // The qualifier is a query parameter, which a rewrite cannot add.
  const isConvertible = region !== undefined && Object.keys({ ...more, ...settings }).length === 0;
  if (!isConvertible) return backend;
  const host = `${AGENT_CORE}.${region}.amazonaws.com${partition === "aws-cn" ? ".cn" : ""}`;
  const { backendAuth, ...own } = asObject(policies);
  const { aws: keys, ...otherAuth } = asObject(backendAuth);
  return {
    ...others,
    host: `https://${host}`,
    policies: {
      ...own,
      urlRewrite: {
        authority: host,
        path: { prefix: `/runtimes/${encodeURIComponent(String(agentRuntimeArn))}/invocations` },
      },
      backendAuth: { ...otherAuth, aws: { ...asObject(keys), region, service: AGENT_CORE } },
    },
  };
}
