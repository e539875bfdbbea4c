ruleset app_registration {
  meta {
    name "Registration"
    description << Where students register: makes the section collection, and tells students where it is. >>
    shares channel
  }
  global {
    channel = function() {
      ent:channel
    }
    beside = function(name) {
      parts = ctx:rid_url.split("/")
      parts.splice(parts.length() - 1, 1, name).join("/")
    }
  }
  rule create {
    select when wrangler ruleset_installed where event:attr("rids") >< ctx:rid
    if ent:collection.isnull() then
      ctx:newPico(rulesets=[{"url": beside("app_section_collection.krl"), "config": {}}]) setting(made)
    fired {
      ent:collection := made
      raise registration event "collection_made"
    }
  }
  rule open_early_ones {
    select when registration collection_made
    foreach ent:early.defaultsTo([]) setting(attrs)
    event:send({"eci": ent:collection, "domain": "section", "type": "needed", "attrs": attrs})
    fired { clear ent:early on final }
  }
  rule open_channel {
    select when registration channel_needed
    if ent:channel.isnull() then ctx:newChannel(
      tags=["anonymous"],
      eventPolicy={"allow": [{"domain": "section", "name": "needed"}], "deny": []},
      queryPolicy={"allow": [], "deny": []}
    ) setting(made)
    fired { ent:channel := made{"id"} }
  }
  rule tell_collection {
    select when section needed
    if ent:collection then every {
      ctx:eventQuery(eci=ent:collection, domain="collection", name="channel_needed", attrs={}, rid="app_section_collection", queryName="channel") setting(eci)
      send_directive("section_collection", {"eci": eci})
    }
  }
  rule open_section {
    select when section opened
    if ent:collection then
      event:send({"eci": ent:collection, "domain": "section", "type": "needed", "attrs": event:attrs})
    notfired {
      ent:early := ent:early.defaultsTo([]).append(event:attrs)
    }
  }
}
