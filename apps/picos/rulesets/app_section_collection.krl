ruleset app_section_collection {
  meta {
    name "Section Collection"
    description << The parent of the sections: makes them, and passes requests on to them. Over its anonymous channel sections are found, not made. >>
    shares sections, sectionCount, search, channel
  }
  global {
    sections = function() {
      ent:sections.defaultsTo({}).keys()
    }
    sectionCount = function() {
      ent:sections.defaultsTo({}).keys().length()
    }
    search = function(text, limit) {
      wanted = text.defaultsTo("").lc()
      most = limit.defaultsTo("20").as("Number")
      found = ent:sections.defaultsTo({}).keys().filter(function(id) { wanted == "" || id.lc().split(wanted).length() > 1 })
      found.length() > most => found.slice(0, most - 1) | found
    }
    channel = function() {
      ent:channel
    }
    section_url = function() {
      parts = ctx:rid_url.split("/")
      parts.splice(parts.length() - 1, 1, "app_section.krl").join("/")
    }
  }
  rule create {
    select when section needed or section may_need_creation
    pre {
      section_id = event:attr("section_id")
      may_create = meta:eci != ent:channel
    }
    if section_id && may_create && ent:sections{[section_id]}.isnull() then every {
      ctx:newPico(rulesets=[{"url": section_url(), "config": {}}]) setting(made)
      event:send({"eci": made, "domain": "section", "type": "config_empty",
        "attrs": {"section_id": section_id, "capacity": event:attr("capacity").defaultsTo(0)}})
      send_directive("section_ready", {"section_id": section_id, "section_state": "creating"})
    }
    fired {
      ent:sections{[section_id]} := made
    }
    else {
      raise section event "ready_needed" attributes event:attrs if section_id
    }
  }
  rule ready {
    select when section ready_needed
    pre {
      section_id = event:attr("section_id")
      section = ent:sections{[section_id]}
    }
    if section then every {
      ctx:eventQuery(eci=section, domain="section", name="channel_needed", attrs={}, rid="app_section", queryName="channel") setting(eci)
      send_directive("section_ready", {"section_id": section_id, "section_state": "ready", "eci": eci})
    }
  }
  rule open_channel {
    select when collection channel_needed
    if ent:channel.isnull() then ctx:newChannel(
      tags=["anonymous"],
      eventPolicy={"allow": [{"domain": "section", "name": "needed"}], "deny": []},
      queryPolicy={"allow": [{"rid": "app_section_collection", "name": "search"}], "deny": []}
    ) setting(made)
    fired { ent:channel := made{"id"} }
  }
  rule pass_on {
    select when section add_request or section drop_request or section add or section drop
    pre { section = ent:sections{[event:attr("section_id")]} }
    if section then
      event:send({"eci": section, "domain": "section", "type": event:name, "attrs": event:attrs})
    notfired {
      error warn "there is no section " + event:attr("section_id")
    }
  }
  rule offline {
    select when section offline
    pre {
      section_id = event:attr("section_id")
      section = ent:sections{[section_id]}
    }
    if section then ctx:delPico(section)
    fired { clear ent:sections{[section_id]} }
  }
  rule empty {
    select when collection empty
    foreach ent:sections.defaultsTo({}) setting(section, section_id)
    ctx:delPico(section)
    fired { clear ent:sections{[section_id]} }
  }
}
