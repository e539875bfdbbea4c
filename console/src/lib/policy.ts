/** What a channel's policy lets through, as the engine decides it. */

export interface Rule {
  domain?: string;
  rid?: string;
  name: string;
}

export interface Policy {
  allow: Rule[];
  deny: Rule[];
}

export type Verdict = 'allowed' | 'denied' | 'not allowed';

const ANY = '*';

/** Of an event the domain, of a query the ruleset, and the name; what is denied is denied whatever is allowed. */
export function verdict(policy: Policy, first: string, name: string): Verdict {
  const meets = (rules: Rule[]) =>
    rules.some((rule) => {
      const of = rule.domain ?? rule.rid;
      return (of === ANY || of === first) && (rule.name === ANY || rule.name === name);
    });
  if (meets(policy.deny)) return 'denied';
  return meets(policy.allow) ? 'allowed' : 'not allowed';
}
